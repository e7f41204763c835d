// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/tree_writer.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/check.h"
#include "formats/ocdbt/columns.h"

namespace crossdock::formats::ocdbt {
namespace {

constexpr std::int64_t kEntryBytes = 16;  // of the columns, about
constexpr std::size_t kKept = 2;          // entries that stay behind, so that no node above the leaves has a single child

/// How much all of them share: that of the first and the last, for they are in order.
template <typename Entry>
std::size_t Shared(const std::vector<Entry>& entries) {
  return CommonPrefix(entries.front().key, entries.back().key);
}

template <typename Entry>
std::vector<Entry> TakeFirst(std::vector<Entry>& from, std::size_t count) {
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(count, from.size()));
  std::vector<Entry> out(std::make_move_iterator(from.begin()), std::make_move_iterator(end));
  from.erase(from.begin(), end);
  return out;
}

}  // namespace

Status TreeWriter::AddInline(std::string key, std::string value) { return AddLeaf({std::move(key), std::move(value), {}}); }

Status TreeWriter::Add(std::string key, const Extent& extent) {
  CROSSDOCK_CHECK(extent.file < files_.size());
  return AddLeaf({std::move(key), {}, extent});
}

Status TreeWriter::AddLeaf(LeafEntry entry) {
  if (levels_.empty()) levels_.emplace_back();
  Level& level = levels_[0];
  CROSSDOCK_CHECK(level.leaves.empty() || level.leaves.back().key < entry.key);
  level.bytes += kEntryBytes + static_cast<std::int64_t>(entry.key.size() + (entry.inlined ? entry.inlined->size() : 0));
  level.leaves.push_back(std::move(entry));
  return FlushIfFull(0);
}

Status TreeWriter::AddChild(std::size_t level, ChildEntry entry) {
  if (levels_.size() <= level) levels_.emplace_back();
  levels_[level].bytes += 4 * kEntryBytes + static_cast<std::int64_t>(entry.key.size());
  levels_[level].children.push_back(std::move(entry));
  return FlushIfFull(level);
}

Status TreeWriter::FlushIfFull(std::size_t level) {
  const Level& open = levels_[level];
  const bool full = open.bytes > options_.node_bytes || open.size() > options_.node_entries;
  return full && open.size() >= 2 * kKept ? Flush(level, open.size() - kKept) : OkStatus();
}

Status TreeWriter::Flush(std::size_t level, std::size_t count) {
  CROSSDOCK_ASSIGN_OR_RETURN(ChildEntry entry, WriteFirst(level, count, false));
  levels_[level].written = true;
  return AddChild(level + 1, std::move(entry));
}

void TreeWriter::FillLeaf(const std::vector<LeafEntry>& entries, std::size_t shared, Node& node, Statistics& statistics) const {
  std::set<std::uint64_t> used;
  for (const LeafEntry& entry : entries) {
    if (!entry.inlined) used.insert(entry.extent.file);
  }
  for (const std::uint64_t file : used) node.files.push_back({"", files_[static_cast<std::size_t>(file)]});
  for (LeafEntry entry : entries) {
    entry.key.erase(0, shared);
    statistics.keys += 1;
    if (!entry.inlined) {
      entry.extent.file = static_cast<std::uint64_t>(std::distance(used.begin(), used.find(entry.extent.file)));
      statistics.indirect_bytes += static_cast<std::uint64_t>(entry.extent.length);
    }
    node.leaves.push_back(std::move(entry));
  }
}

void TreeWriter::FillInner(const std::vector<ChildEntry>& entries, std::size_t shared, Node& node, Statistics& statistics) const {
  node.files.push_back({"", options_.node_file});
  for (ChildEntry entry : entries) {
    entry.key.erase(0, shared);
    entry.shared -= shared;
    statistics.Add(entry.statistics);
    node.children.push_back(std::move(entry));
  }
}

Result<ChildEntry> TreeWriter::WriteFirst(std::size_t level, std::size_t count, bool root) {
  Level& open = levels_[level];
  Node node;
  node.height = static_cast<int>(level);
  ChildEntry out;
  if (level == 0) {
    const std::vector<LeafEntry> entries = TakeFirst(open.leaves, count);
    const std::size_t shared = root ? 0 : Shared(entries);
    out.key = entries.front().key;
    out.shared = shared;
    FillLeaf(entries, shared, node, out.statistics);
  } else {
    const std::vector<ChildEntry> entries = TakeFirst(open.children, count);
    CROSSDOCK_CHECK(entries.size() >= kKept);
    std::uint64_t shared = root ? 0 : Shared(entries);
    for (const ChildEntry& entry : entries) shared = std::min(shared, entry.shared);
    out.key = entries.front().key;
    out.shared = shared;
    FillInner(entries, static_cast<std::size_t>(shared), node, out.statistics);
  }
  open.bytes = 0;  // of the few that stay behind: not worth counting
  const std::string record = WriteNode(node);
  CROSSDOCK_RETURN_IF_ERROR(sink_(record));
  out.extent = {0, written_, static_cast<std::int64_t>(record.size())};
  written_ += out.extent.length;
  out.statistics.tree_bytes += record.size();
  return out;
}

Result<Root> TreeWriter::Finish() {
  Root root;
  if (levels_.empty()) return root;
  for (std::size_t level = 0;; ++level) {
    const std::size_t count = levels_[level].size();
    if (levels_[level].written) {
      CROSSDOCK_RETURN_IF_ERROR(Flush(level, count));
      continue;
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const ChildEntry entry, WriteFirst(level, count, true));
    root.height = static_cast<int>(level);
    root.file = {"", options_.node_file};
    root.offset = entry.extent.offset;
    root.length = entry.extent.length;
    root.statistics = entry.statistics;
    return root;
  }
}

}  // namespace crossdock::formats::ocdbt
