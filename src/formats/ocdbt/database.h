// SPDX-License-Identifier: Apache-2.0
/// \file  Reads a database: every key of its newest generation, in order, and where its value lies.
/// On disk: FORMAT.md. A database that was merged from those of several processes refers to their files and nodes where they are.
/// Memory: the nodes from the root to one leaf.
/// Errors: kIncomplete (no manifest: the save was not finished; a data file that is missing), kCorrupt (names file and offset; a node
/// that is reached twice, keys that do not ascend), kUnsafe (a path that leads out), kUnsupported (too many nodes or keys).
/// Threads: a Database is used by one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "crossdock/result.h"
#include "formats/ocdbt/manifest.h"
#include "formats/ocdbt/node.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::ocdbt {

inline constexpr std::string_view kManifestName = "manifest.ocdbt";

/// Bytes in a file of the database.
struct Place {
  std::string path;  ///< below the database's directory
  ByteRange bytes;
};

/// One key and its value: in a data file, or inline in a node.
struct Item {
  std::string_view key;
  Place place;                              ///< of the value; of the node that holds it when it is inline
  std::optional<std::string_view> inlined;
};
using Visitor = std::function<Status(const Item&)>;

class Database {
 public:
  [[nodiscard]] static Result<Database> Open(io::Storage& storage, const std::string& dir);
  /// Calls `visit` for every key; its views last until it returns.
  [[nodiscard]] Status Visit(const Visitor& visit);
  /// The bytes of a value.
  [[nodiscard]] Result<std::string> ReadValue(const Item& item);
  [[nodiscard]] const Root& root() const { return root_; }

 private:
  Database(io::Storage& storage, std::string dir, Root root) : storage_(&storage), dir_(std::move(dir)), root_(std::move(root)) {}
  [[nodiscard]] Result<std::string> Read(const Place& place);
  /// `prefix` is what all keys of the node have and leave out.
  [[nodiscard]] Status VisitNode(const DataFile& file, const Place& place, int height, const std::string& prefix, const Visitor& visit);
  [[nodiscard]] Status VisitLeaf(const Node& node, const Place& place, const std::string& prefix, const Visitor& visit);

  io::Storage* storage_;
  std::string dir_;
  Root root_;
  std::string open_path_;
  std::unique_ptr<io::ReadFile> open_;  ///< the file read last
  std::set<std::pair<std::string, std::int64_t>> visited_;
  std::optional<std::string> last_key_;
  std::int64_t keys_ = 0;
};

}  // namespace crossdock::formats::ocdbt
