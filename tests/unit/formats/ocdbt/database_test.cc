// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/database.h"

#include "base/sha256.h"
#include "tensor/value.h"
#include "unit/formats/ocdbt/stored_tree.h"

namespace crossdock::formats::ocdbt {
namespace {

using ::testing::HasSubstr;

class OcdbtGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(OcdbtGolden, ReadsWhatTensorStoreWrote) {
  const auto storage = io::MakeLocalStorage();
  const std::string golden = std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/orbax";
  ASSERT_OK_AND_ASSIGN(const std::string text, io::ReadSmallFile(*storage, golden + "/expected.json"));
  ASSERT_OK_AND_ASSIGN(const Value expected, ParseJson(text));
  const std::string name = std::string("ocdbt/") + GetParam();
  ASSERT_OK_AND_ASSIGN(const Keys keys, ReadAll(*storage, golden + "/" + name));
  const Value* wanted = expected.Find(name);
  ASSERT_NE(wanted, nullptr);
  EXPECT_EQ(keys.size(), wanted->as_dict()->items.size());
  for (const auto& [key, digest] : wanted->as_dict()->items) {
    const auto at = keys.find(*key.as_string());
    ASSERT_NE(at, keys.end()) << *key.as_string();
    EXPECT_EQ(Sha256Hex(at->second), *digest.as_string()) << *key.as_string();
  }
}

INSTANTIATE_TEST_SUITE_P(All, OcdbtGolden, ::testing::Values("tall", "numbered", "plain"), [](const auto& row) { return row.param; });

class OcdbtDatabase : public ::testing::Test {
 protected:
  OcdbtDatabase() {
    for (int i = 0; i < 60; ++i) keys_["key_" + std::to_string(i)] = "value " + std::to_string(i);
    root_ = WriteTree(storage_, "/db", keys_, 4, 300);
    nodes_ = storage_.Files("/db/d").at("nodes");
  }
  void Replace(const std::string& path, const std::string& bytes) {
    ASSERT_THAT(io::RemoveFileIfPresent(storage_, path), IsOk());
    ASSERT_THAT(io::WriteSmallFile(storage_, path, bytes), IsOk());
  }
  /// Appends a node; where it lies.
  Extent Append(const Node& node) {
    const std::string record = WriteNode(node);
    const Extent extent{0, static_cast<std::int64_t>(nodes_.size()), static_cast<std::int64_t>(record.size())};
    nodes_ += record;
    return extent;
  }
  static Node Parent(int height, std::vector<ChildEntry> children) {
    Node node;
    node.height = height;
    node.files = {{"", "d/nodes"}};
    node.children = std::move(children);
    return node;
  }
  static Node OneKey(const std::string& key) {
    Node node;
    node.leaves = {{key, "1", {}}};
    return node;
  }
  /// A manifest over a root that is appended to the nodes.
  void PutRoot(const Node& node) {
    const Extent at = Append(node);
    Manifest manifest;
    manifest.newest = Root{1, node.height, {"", "d/nodes"}, at.offset, at.length, {}, 1};
    Replace("/db/d/nodes", nodes_);
    Replace("/db/manifest.ocdbt", WriteManifest(manifest));
  }
  io::MemoryStorage storage_;
  Keys keys_;
  Root root_;
  std::string nodes_;
};

TEST_F(OcdbtDatabase, WithoutAManifestTheSaveWasNotFinished) {
  ASSERT_THAT(io::RemoveFileIfPresent(storage_, "/db/manifest.ocdbt"), IsOk());
  EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kIncomplete, HasSubstr("not finished")));
}

TEST_F(OcdbtDatabase, AMissingFileOfNodesIsTold) {
  ASSERT_THAT(io::RemoveFileIfPresent(storage_, "/db/d/nodes"), IsOk());
  EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kIncomplete, HasSubstr("d/nodes")));
}

TEST_F(OcdbtDatabase, ARecordBeyondTheEndIsCorrupt) {
  Replace("/db/d/nodes", nodes_.substr(0, nodes_.size() - 1));
  EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kCorrupt, HasSubstr("beyond the end of its file")));
}

TEST_F(OcdbtDatabase, EveryFlippedByteOfTheNodesIsFound) {
  const std::string good = nodes_;
  for (std::size_t i = 0; i < good.size(); i += 7) {
    std::string flipped = good;
    flipped[i] ^= 0x20;
    Replace("/db/d/nodes", flipped);
    EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kCorrupt, HasSubstr("malformed"))) << i;
  }
}

TEST_F(OcdbtDatabase, ANodeThatIsReachedTwiceIsCorrupt) {
  // Under another prefix its keys would be new ones: 255 levels of that would be 2^255 keys.
  const Extent leaf = Append(OneKey("x"));
  PutRoot(Parent(1, {{"ax", 1, leaf, {}}, {"bx", 1, leaf, {}}}));
  EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kCorrupt, HasSubstr("reached twice")));
}

TEST_F(OcdbtDatabase, ANodeThatPointsToItselfIsCorrupt) {
  // Its own length must be right, or its bytes are: found by trying.
  for (std::int64_t length = 20; length < 120; ++length) {
    const Extent self{0, static_cast<std::int64_t>(nodes_.size()), length};
    const Node node = Parent(1, {{"a", 0, self, {}}, {"b", 0, self, {}}});
    if (static_cast<std::int64_t>(WriteNode(node).size()) != length) continue;
    PutRoot(node);
    EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kCorrupt, HasSubstr("reached twice")));
    return;
  }
  FAIL() << "no such node";
}

TEST_F(OcdbtDatabase, AChildAtAnotherHeightIsCorrupt) {
  const Extent old{0, root_.offset, root_.length};
  PutRoot(Parent(root_.height + 2, {{"a", 0, old, {}}, {"b", 0, old, {}}}));
  EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kCorrupt, HasSubstr("another height")));
}

TEST_F(OcdbtDatabase, KeysThatFallFromNodeToNodeAreCorrupt) {
  const Extent b = Append(OneKey("b"));
  const Extent a = Append(OneKey("a"));
  PutRoot(Parent(1, {{"a", 0, b, {}}, {"b", 0, a, {}}}));
  EXPECT_THAT(ReadAll(storage_, "/db"), IsError(ErrorCode::kCorrupt, HasSubstr("from node to node")));
}

TEST_F(OcdbtDatabase, NodesOfAnotherDatabaseNameTheirFilesFromThere) {
  // As Orbax merges: the root refers to a whole tree of a process where it lies.
  io::MemoryStorage storage;
  const Root inner = WriteTree(storage, "/db/ocdbt.process_3", keys_, 4, 1 << 20);
  ASSERT_EQ(inner.height, 0);
  const std::string leaf = WriteNode(OneKey("zz"));
  Node root;
  root.height = 1;
  root.files = {{"", "d/top"}, {"ocdbt.process_3/", "d/nodes"}};
  root.children = {{"key_0", 0, {1, inner.offset, inner.length}, {}}, {"zz", 0, {0, 0, static_cast<std::int64_t>(leaf.size())}, {}}};
  const std::string top = WriteNode(root);
  ASSERT_THAT(io::MakeDirs(storage, "/db/d"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "/db/d/top", leaf + top), IsOk());
  Manifest manifest;
  manifest.newest = Root{1, 1, {"", "d/top"}, static_cast<std::int64_t>(leaf.size()), static_cast<std::int64_t>(top.size()), {}, 1};
  ASSERT_THAT(io::WriteSmallFile(storage, "/db/manifest.ocdbt", WriteManifest(manifest)), IsOk());
  ASSERT_OK_AND_ASSIGN(const Keys back, ReadAll(storage, "/db"));
  EXPECT_EQ(back.size(), keys_.size() + 1);
  EXPECT_EQ(back.at("key_7"), keys_.at("key_7"));
}

}  // namespace
}  // namespace crossdock::formats::ocdbt
