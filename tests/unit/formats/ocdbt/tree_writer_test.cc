// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/tree_writer.h"

#include "unit/formats/ocdbt/stored_tree.h"

namespace crossdock::formats::ocdbt {
namespace {

Keys Layers(int count) {
  Keys keys;
  for (int i = 0; i < count; ++i) {
    for (const char* part : {"/zarr.json", "/c/0/0", "/c/0/1"}) keys["params.layers_" + std::to_string(i) + part] = std::string(static_cast<std::size_t>(i % 40), 'v');
  }
  return keys;
}

TEST(OcdbtTreeWriter, WhatIsWrittenIsReadWhateverTheHeight) {
  int tallest = 0;
  for (const int count : {0, 1, 2, 5, 30, 400}) {
    for (const std::int64_t node_bytes : {1, 100, 700, 1 << 20}) {
      io::MemoryStorage storage;
      Keys keys = Layers(count);
      if (count == 1) keys = {{"", "the empty key"}};
      const Root root = WriteTree(storage, "/db", keys, 20, node_bytes);
      tallest = std::max(tallest, root.height);
      ASSERT_OK_AND_ASSIGN(const Keys back, ReadAll(storage, "/db"));
      EXPECT_EQ(back, keys) << count << " " << node_bytes;
      EXPECT_EQ(root.statistics.keys, keys.size());
      std::uint64_t indirect = 0;
      for (const auto& [key, value] : keys) indirect += value.size() > 20 ? value.size() : 0;
      EXPECT_EQ(root.statistics.indirect_bytes, indirect);
      EXPECT_EQ(root.statistics.tree_bytes, storage.Files("/db/d").at("nodes").size());
    }
  }
  EXPECT_GT(tallest, 5);
}

TEST(OcdbtTreeWriter, EqualKeysGiveEqualBytes) {
  io::MemoryStorage a, b;
  WriteTree(a, "/db", Layers(50), 20, 500);
  WriteTree(b, "/db", Layers(50), 20, 500);
  EXPECT_EQ(a.Files("/db"), b.Files("/db"));
}

/// Nodes below the root leave out what all their keys share; the root, which nothing lies above, must not.
TEST(OcdbtTreeWriter, TheRootKeepsWholeKeys) {
  io::MemoryStorage storage;
  const Root root = WriteTree(storage, "/db", Layers(60), 20, 700);
  ASSERT_GT(root.height, 0);
  const std::string nodes = storage.Files("/db/d").at("nodes");
  const auto at = [&](std::int64_t offset, std::int64_t length) {
    return std::string_view(nodes).substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
  };
  ASSERT_OK_AND_ASSIGN(const Node top, ReadNode(at(root.offset, root.length), ""));
  const ChildEntry& first = top.children.front();
  EXPECT_EQ(first.key, "params.layers_0/c/0/0");
  EXPECT_GE(first.shared, std::string("params.layers_").size());
  ASSERT_OK_AND_ASSIGN(const Node below, ReadNode(at(first.extent.offset, first.extent.length), ""));
  const std::string key = below.height == 0 ? below.leaves.front().key : below.children.front().key;
  EXPECT_EQ(first.key.substr(0, static_cast<std::size_t>(first.shared)) + key, "params.layers_0/c/0/0");
}

}  // namespace
}  // namespace crossdock::formats::ocdbt
