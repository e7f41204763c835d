// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/node.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "formats/ocdbt/columns.h"
#include "formats/ocdbt/envelope.h"

namespace crossdock::formats::ocdbt {
namespace {

constexpr std::uint64_t kMostEntries = std::uint64_t{1} << 20U;
constexpr std::uint64_t kLongestKey = 65535;
constexpr std::uint64_t kLargestInline = std::uint64_t{1} << 20U;

Result<Extent> MakeExtent(std::uint64_t file, std::uint64_t offset, std::uint64_t length, std::size_t files) {
  if (file >= files) return Malformed("a file that its table does not have");
  if (offset > kLargestOffset || length > kLargestOffset - offset) return Malformed("a place beyond any file");
  return Extent{file, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(length)};
}

/// The keys, and above leaves how much of each is shared below.
struct Keys {
  std::vector<std::string> keys;
  std::vector<std::uint64_t> shared;
};

Result<Keys> ReadKeys(Cursor& cursor, std::uint64_t count, bool interior) {
  Keys out;
  CROSSDOCK_ASSIGN_OR_RETURN(const auto prefixes, cursor.Column(count - 1, kLongestKey, "the length of a key"));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto suffixes, cursor.Column(count, kLongestKey, "the length of a key"));
  if (interior) {
    CROSSDOCK_ASSIGN_OR_RETURN(out.shared, cursor.Column(count, kLongestKey, "the length of a key"));
  }
  out.keys.reserve(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    std::string key;
    if (i > 0) {
      const std::string& before = out.keys.back();
      if (prefixes[i - 1] > before.size() || prefixes[i - 1] + suffixes[i] > kLongestKey) return Malformed("a key that continues more than there is");
      key = before.substr(0, static_cast<std::size_t>(prefixes[i - 1]));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view suffix, cursor.Bytes(suffixes[i]));
    key += suffix;
    if (i > 0 && key <= out.keys.back()) return Malformed("keys that do not ascend");
    if (interior && out.shared[i] > key.size()) return Malformed("a key shorter than what is shared below it");
    out.keys.push_back(std::move(key));
  }
  return out;
}

Status ReadLeaves(Cursor& cursor, std::vector<std::string> keys, Node& node) {
  const std::size_t count = keys.size();
  CROSSDOCK_ASSIGN_OR_RETURN(const auto lengths, cursor.Column(count, kNowhere, "the length of a value"));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view kinds, cursor.Bytes(count));
  std::uint64_t indirect = 0;
  for (const char kind : kinds) {
    if (kind != 0 && kind != 1) return Malformed("a value of an unknown kind");
    if (kind == 1) ++indirect;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const auto files, cursor.Column(indirect, kNowhere, "a file"));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto offsets, cursor.Column(indirect, kNowhere, "an offset"));
  std::size_t next = 0;
  node.leaves.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    LeafEntry entry;
    entry.key = std::move(keys[i]);
    if (kinds[i] == 1) {
      CROSSDOCK_ASSIGN_OR_RETURN(entry.extent, MakeExtent(files[next], offsets[next], lengths[i], node.files.size()));
      ++next;
    } else {
      if (lengths[i] > kLargestInline) return Malformed("an inline value of more than 1 MiB");
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view value, cursor.Bytes(lengths[i]));
      entry.inlined = std::string(value);
    }
    node.leaves.push_back(std::move(entry));
  }
  return OkStatus();
}

Status ReadChildren(Cursor& cursor, Keys keys, Node& node) {
  const std::size_t count = keys.keys.size();
  std::vector<std::uint64_t> columns[6];
  for (auto& column : columns) {
    CROSSDOCK_ASSIGN_OR_RETURN(column, cursor.Column(count, kNowhere, "a number"));
  }
  node.children.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    ChildEntry entry;
    entry.key = std::move(keys.keys[i]);
    entry.shared = keys.shared[i];
    CROSSDOCK_ASSIGN_OR_RETURN(entry.extent, MakeExtent(columns[0][i], columns[1][i], columns[2][i], node.files.size()));
    entry.statistics = {columns[3][i], columns[4][i], columns[5][i]};
    node.children.push_back(std::move(entry));
  }
  return OkStatus();
}

template <typename Entry>
void PutKeys(std::string& out, const std::vector<Entry>& entries) {
  PutUv(out, entries.size());
  std::vector<std::size_t> prefixes(entries.size(), 0);
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const auto same = std::ranges::mismatch(entries[i - 1].key, entries[i].key);
    prefixes[i] = static_cast<std::size_t>(same.in2 - entries[i].key.begin());
    PutUv(out, prefixes[i]);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) PutUv(out, entries[i].key.size() - prefixes[i]);
  if constexpr (std::is_same_v<Entry, ChildEntry>) {
    for (const ChildEntry& entry : entries) PutUv(out, entry.shared);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) out += std::string_view(entries[i].key).substr(prefixes[i]);
}

}  // namespace

void Statistics::Add(const Statistics& other) {
  keys += other.keys;
  tree_bytes += other.tree_bytes;
  indirect_bytes += other.indirect_bytes;
}

Result<Node> ReadNode(std::string_view record, std::string_view transitive) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string body, OpenEnvelope(Record::kNode, record));
  Cursor cursor(body);
  Node node;
  CROSSDOCK_ASSIGN_OR_RETURN(node.height, cursor.U8());
  CROSSDOCK_ASSIGN_OR_RETURN(node.files, ReadFileTable(cursor, transitive));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t count, cursor.Uv(kMostEntries, "the number of entries"));
  if (count == 0) return Malformed("a node without entries");
  CROSSDOCK_ASSIGN_OR_RETURN(Keys keys, ReadKeys(cursor, count, node.height > 0));
  CROSSDOCK_RETURN_IF_ERROR(node.height > 0 ? ReadChildren(cursor, std::move(keys), node) : ReadLeaves(cursor, std::move(keys.keys), node));
  CROSSDOCK_RETURN_IF_ERROR(cursor.End());
  return node;
}

std::string WriteNode(const Node& node) {
  CROSSDOCK_CHECK(node.height > 0 ? !node.children.empty() : !node.leaves.empty());
  std::string body;
  body += static_cast<char>(node.height);
  PutFileTable(body, node.files);
  if (node.height == 0) {
    PutKeys(body, node.leaves);
    for (const LeafEntry& e : node.leaves) PutUv(body, e.inlined ? e.inlined->size() : static_cast<std::uint64_t>(e.extent.length));
    for (const LeafEntry& e : node.leaves) body += e.inlined ? '\0' : '\1';
    for (const LeafEntry& e : node.leaves) {
      if (!e.inlined) PutUv(body, e.extent.file);
    }
    for (const LeafEntry& e : node.leaves) {
      if (!e.inlined) PutUv(body, static_cast<std::uint64_t>(e.extent.offset));
    }
    for (const LeafEntry& e : node.leaves) body += e.inlined.value_or("");
  } else {
    PutKeys(body, node.children);
    for (const ChildEntry& e : node.children) PutUv(body, e.extent.file);
    for (const ChildEntry& e : node.children) PutUv(body, static_cast<std::uint64_t>(e.extent.offset));
    for (const ChildEntry& e : node.children) PutUv(body, static_cast<std::uint64_t>(e.extent.length));
    for (const ChildEntry& e : node.children) PutUv(body, e.statistics.keys);
    for (const ChildEntry& e : node.children) PutUv(body, e.statistics.tree_bytes);
    for (const ChildEntry& e : node.children) PutUv(body, e.statistics.indirect_bytes);
  }
  return Envelope(Record::kNode, body);
}

}  // namespace crossdock::formats::ocdbt
