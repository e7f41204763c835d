// SPDX-License-Identifier: Apache-2.0
/// \file  The table of data files at the head of a manifest or node.
/// On disk (FORMAT.md, 3): uv n; prefix lengths, suffix lengths, lengths of the base part; suffixes; sorted by (base, relative).
/// A path is what led to the record, then base, then relative; records that are reached through the file inherit the first two, so
/// that the tree of `ocdbt.process_3/` names its own files wherever it is referred to.
/// Errors: kCorrupt, kUnsafe (a path that leads out of the database). Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "formats/ocdbt/columns.h"

namespace crossdock::formats::ocdbt {

struct DataFile {
  std::string base;      ///< with what led here: records in the file begin with it
  std::string relative;
  [[nodiscard]] std::string path() const { return base + relative; }  ///< below the database's directory
  auto operator<=>(const DataFile&) const = default;
};

/// `transitive` is what led to the record: "" for a manifest. Paths are checked; an empty one (of an empty tree) is kept as it is.
[[nodiscard]] Result<std::vector<DataFile>> ReadFileTable(Cursor& cursor, std::string_view transitive);
/// REQUIRES: sorted, without repetition.
void PutFileTable(std::string& out, const std::vector<DataFile>& files);

/// Bytes in one of a table's files.
struct Extent {
  std::uint64_t file = 0;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

}  // namespace crossdock::formats::ocdbt
