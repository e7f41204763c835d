// SPDX-License-Identifier: Apache-2.0
/// \file  Writes a B+tree over keys that come in order, as a stream: nodes go out as they fill, one open node a level is kept.
/// On disk: FORMAT.md, 5. All nodes lie in one data file, which the caller writes front to back.
/// Invariants: the root keeps whole keys, other nodes leave out what all their keys share; a node above the leaves has two
/// children at least; a node is about as large as asked, and has far fewer entries than readers take.
/// Errors: those of the sink. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "formats/ocdbt/manifest.h"
#include "formats/ocdbt/node.h"

namespace crossdock::formats::ocdbt {

/// Appends a record to the file of the nodes.
using NodeSink = std::function<Status(std::string_view record)>;

struct TreeOptions {
  std::string node_file;                        ///< relative, "d/<32 hex digits>"
  std::int64_t node_bytes = std::int64_t{4} << 20U;  ///< of keys and values in one node, about
  std::size_t node_entries = std::size_t{1} << 16U;
};

class TreeWriter {
 public:
  /// `files` are those that values lie in, sorted and without repetition; Add names them by index. They outlive this.
  TreeWriter(const std::vector<std::string>& files, TreeOptions options, NodeSink sink)
      : files_(files), options_(std::move(options)), sink_(std::move(sink)) {}
  /// A value that the node holds itself. REQUIRES: keys ascend strictly.
  [[nodiscard]] Status AddInline(std::string key, std::string value);
  [[nodiscard]] Status Add(std::string key, const Extent& extent);
  /// Writes what is left; where the root is.
  [[nodiscard]] Result<Root> Finish();

 private:
  /// The open node of one level; of leaves or of children, by full keys.
  struct Level {
    std::vector<LeafEntry> leaves;
    std::vector<ChildEntry> children;  ///< `shared` counts from the start of the full key here
    std::int64_t bytes = 0;
    bool written = false;  ///< a node of this level went out: the next is no root
    [[nodiscard]] std::size_t size() const { return leaves.size() + children.size(); }
  };
  [[nodiscard]] Status AddLeaf(LeafEntry entry);
  [[nodiscard]] Status AddChild(std::size_t level, ChildEntry entry);
  [[nodiscard]] Status FlushIfFull(std::size_t level);
  /// Writes the first `count` entries of a level as a node and enters it above.
  [[nodiscard]] Status Flush(std::size_t level, std::size_t count);
  /// Writes them; the entry that speaks of the node. As root it keeps whole keys.
  [[nodiscard]] Result<ChildEntry> WriteFirst(std::size_t level, std::size_t count, bool root);
  void FillLeaf(const std::vector<LeafEntry>& entries, std::size_t shared, Node& node, Statistics& statistics) const;
  void FillInner(const std::vector<ChildEntry>& entries, std::size_t shared, Node& node, Statistics& statistics) const;

  const std::vector<std::string>& files_;
  TreeOptions options_;
  NodeSink sink_;
  std::vector<Level> levels_;
  std::int64_t written_ = 0;
};

}  // namespace crossdock::formats::ocdbt
