// SPDX-License-Identifier: Apache-2.0
/// \file  The arrays of an item: for each its metadata and its objects, from an OCDBT database or from directories.
/// On disk (FORMAT.md, 2): keys NAME/zarr.json and NAME/c/0/1 of zarr v3, NAME/.zarray and NAME/0.1 of v2; the same as files in
/// directories where OCDBT is off. Names are not escaped: only the tree says where one ends.
/// Memory: the keys of one array at a time, beside what becomes of them.
/// Errors: kIncomplete, kCorrupt, kUnsafe (links, paths that lead out). Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "formats/zarr/array_metadata.h"
#include "formats/zarr/chunk_grid.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::orbax {

/// The files that chunks lie in, entered in a catalog as they are met.
class StoreFiles {
 public:
  /// Paths in the catalog begin with `item` where that is not empty.
  StoreFiles(io::Storage& storage, Catalog& catalog, std::string item) : storage_(storage), catalog_(catalog), item_(std::move(item)) {}
  /// The number of a file below the item; kIncomplete when it is not there, kUnsafe for a link.
  [[nodiscard]] Result<std::int32_t> Number(const std::string& path);
  /// Nothing when it is not there.
  [[nodiscard]] Result<std::optional<std::int32_t>> Find(const std::string& path);
  [[nodiscard]] std::int64_t SizeOf(std::int32_t file) const { return catalog_.files[static_cast<std::size_t>(file)].identity.size; }
  [[nodiscard]] Result<std::shared_ptr<const io::ReadFile>> Open(std::int32_t file) const;
  [[nodiscard]] io::Storage& storage() { return storage_; }
  /// Of the item.
  [[nodiscard]] std::string dir() const { return item_.empty() ? catalog_.root : io::JoinPath(catalog_.root, item_); }

 private:
  io::Storage& storage_;
  Catalog& catalog_;
  std::string item_;
  std::map<std::string, std::int32_t> numbers_;
};

struct StoredArray {
  std::string name;
  zarr::ArrayMetadata metadata;
  zarr::PlacedChunks placed;
};
using TakeArray = std::function<Status(StoredArray)>;

struct StoreForm {
  bool zarr3 = true;
  bool zeros_left_out = false;  ///< a chunk that is missing is zero
};

/// Gives every array in `names` (sorted) to `take`; the names of other arrays go to `others`. An array that is missing is left to the
/// caller to notice.
[[nodiscard]] Status ReadOcdbtArrays(StoreFiles& files, const std::set<std::string>& names, StoreForm form, const TakeArray& take,
                                     std::set<std::string>* others);
[[nodiscard]] Status ReadDirectoryArrays(StoreFiles& files, const std::set<std::string>& names, StoreForm form, const TakeArray& take);

}  // namespace crossdock::formats::orbax
