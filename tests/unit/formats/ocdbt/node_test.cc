// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/node.h"

#include "formats/ocdbt/envelope.h"
#include "result_matchers.h"

namespace crossdock::formats::ocdbt {
namespace {

using ::testing::HasSubstr;

Node Leaf() {
  Node node;
  node.files = {{"", "d/aa"}, {"", "d/ab"}, {"ocdbt.process_0/", "d/aa"}};
  node.leaves = {{"a/c/0", {}, {2, 5, 7}}, {"a/c/1", {}, {0, 0, 3}}, {"a/zarr.json", "{}", {}}, {"b", "", {}}};
  return node;
}

Node Inner() {
  Node node;
  node.height = 2;
  node.files = {{"", "d/aa"}, {"", "d/b"}};
  node.children = {{"layers_1/a", 7, {0, 0, 100}, {3, 200, 4000}}, {"layers_2", 0, {1, 100, 50}, {1, 50, 0}}};
  return node;
}

TEST(OcdbtNode, LeavesGoBothWays) {
  ASSERT_OK_AND_ASSIGN(const Node back, ReadNode(WriteNode(Leaf()), ""));
  EXPECT_EQ(back.height, 0);
  EXPECT_EQ(back.files, Leaf().files);
  ASSERT_EQ(back.leaves.size(), 4U);
  EXPECT_EQ(back.leaves[0].key, "a/c/0");
  EXPECT_EQ(back.leaves[0].extent.file, 2U);
  EXPECT_EQ(back.leaves[0].extent.offset, 5);
  EXPECT_EQ(back.leaves[0].extent.length, 7);
  EXPECT_EQ(back.leaves[2].inlined, "{}");
  EXPECT_EQ(back.leaves[3].inlined, "");
}

TEST(OcdbtNode, InnerNodesGoBothWays) {
  ASSERT_OK_AND_ASSIGN(const Node back, ReadNode(WriteNode(Inner()), ""));
  ASSERT_EQ(back.children.size(), 2U);
  EXPECT_EQ(back.children[0].key, "layers_1/a");
  EXPECT_EQ(back.children[0].shared, 7U);
  EXPECT_EQ(back.children[1].extent.file, 1U);
  EXPECT_EQ(back.children[0].statistics.indirect_bytes, 4000U);
}

TEST(OcdbtNode, PathsContinueWhatLedToTheNode) {
  ASSERT_OK_AND_ASSIGN(const Node back, ReadNode(WriteNode(Leaf()), "ocdbt.process_1/"));
  EXPECT_EQ(back.files[0].path(), "ocdbt.process_1/d/aa");
  EXPECT_EQ(back.files[2].base, "ocdbt.process_1/ocdbt.process_0/");
}

TEST(OcdbtNode, PathsThatLeadOutAreUnsafe) {
  for (const char* path : {"../d/aa", "/etc/passwd", "d//aa", "d/./a"}) {
    Node node = Leaf();
    node.files = {{"", path}};
    node.leaves = {{"a", {}, {0, 0, 1}}};
    EXPECT_THAT(ReadNode(WriteNode(node), ""), IsError(ErrorCode::kUnsafe, HasSubstr("outside"))) << path;
  }
}

struct BrokenCase {
  const char* name;
  void (*change)(Node&);
  const char* says;
};
void PrintTo(const BrokenCase& c, std::ostream* out) { *out << c.name; }
class OcdbtBroken : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(OcdbtBroken, IsRefused) {
  Node leaf = Leaf();
  GetParam().change(leaf);
  EXPECT_THAT(ReadNode(WriteNode(leaf), ""), IsError(ErrorCode::kCorrupt, HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    All, OcdbtBroken,
    ::testing::Values(BrokenCase{"keys_fall", [](Node& n) { std::swap(n.leaves[0].key, n.leaves[1].key); }, "do not ascend"},
                      BrokenCase{"keys_repeat", [](Node& n) { n.leaves[1].key = n.leaves[0].key; }, "do not ascend"},
                      BrokenCase{"no_such_file", [](Node& n) { n.leaves[0].extent.file = 3; }, "does not have"},
                      BrokenCase{"far_offset", [](Node& n) { n.leaves[0].extent.offset = -1; }, "beyond any file"},
                      BrokenCase{"overflow", [](Node& n) { n.leaves[0].extent = {0, INT64_MAX, 2}; }, "beyond any file"},
                      BrokenCase{"large_inline", [](Node& n) { n.leaves[2].inlined = std::string((1 << 20) + 1, 'x'); }, "more than 1 MiB"},
                      BrokenCase{"files_unsorted", [](Node& n) { std::swap(n.files[0], n.files[1]); }, "not in order"}),
    [](const auto& row) { return row.param.name; });

TEST(OcdbtNode, EveryCutOfABodyIsRefused) {
  for (const Node& node : {Leaf(), Inner()}) {
    ASSERT_OK_AND_ASSIGN(const std::string body, OpenEnvelope(Record::kNode, WriteNode(node)));
    for (std::size_t n = 0; n < body.size(); ++n) {
      EXPECT_THAT(ReadNode(Envelope(Record::kNode, body.substr(0, n)), ""), IsError(ErrorCode::kCorrupt, HasSubstr(""))) << n;
    }
    EXPECT_THAT(ReadNode(Envelope(Record::kNode, body + "x"), ""), IsError(ErrorCode::kCorrupt, HasSubstr("follow its end")));
  }
}

TEST(OcdbtNode, ANodeOfNothingIsRefused) {
  EXPECT_THAT(ReadNode(Envelope(Record::kNode, std::string("\0\0\0", 3)), ""), IsError(ErrorCode::kCorrupt, HasSubstr("without entries")));
}

TEST(OcdbtNode, AKeyShorterThanWhatIsSharedIsRefused) {
  Node node = Inner();
  node.children[0].shared = 11;
  EXPECT_THAT(ReadNode(WriteNode(node), ""), IsError(ErrorCode::kCorrupt, HasSubstr("shorter than what is shared")));
}

}  // namespace
}  // namespace crossdock::formats::ocdbt
