// SPDX-License-Identifier: Apache-2.0
/// \file  One node of the B+tree: read, and written.
/// On disk (FORMAT.md, 5), in the envelope of Record::kNode, column by column:
///   u8 height; table of data files; uv n (>= 1)
///   uv x (n-1) length of the prefix that a key shares with the one before; uv x n length of what follows it
///   above leaves: uv x n how much of the key all keys below share; then what follows the prefixes, of all keys
///   leaf:  uv x n length of the value, u8 x n kind (0 inline, 1 in a data file), for those of kind 1 uv file, uv offset; the inline values
///   above: uv x n file, offset, length of the child, then its number of keys, bytes of its nodes, bytes of its values in files
/// Keys lack the prefix that the nodes above said all of them share.
/// Invariants of what is read: keys ascend strictly, files exist in the table, offset + length fit 63 bits.
/// Errors: kCorrupt, kUnsafe. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "formats/ocdbt/file_table.h"

namespace crossdock::formats::ocdbt {

struct Statistics {
  std::uint64_t keys = 0;
  std::uint64_t tree_bytes = 0;      ///< of all nodes, encoded
  std::uint64_t indirect_bytes = 0;  ///< of values in data files
  void Add(const Statistics& other);
};

struct LeafEntry {
  std::string key;  ///< without what the nodes above share
  std::optional<std::string> inlined;
  Extent extent;    ///< of a value in a data file
};

struct ChildEntry {
  std::string key;              ///< the first one below, without what the nodes above share
  std::uint64_t shared = 0;     ///< bytes at the front of `key` that all keys below have, and that they leave out
  Extent extent;
  Statistics statistics;
};

struct Node {
  int height = 0;
  std::vector<DataFile> files;
  std::vector<LeafEntry> leaves;      ///< of height 0
  std::vector<ChildEntry> children;   ///< above
};

/// `transitive` is the base of the file that holds the node, with what led to that.
[[nodiscard]] Result<Node> ReadNode(std::string_view record, std::string_view transitive);
/// The record. REQUIRES: the invariants.
[[nodiscard]] std::string WriteNode(const Node& node);

}  // namespace crossdock::formats::ocdbt
