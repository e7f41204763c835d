// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_shards.h"

#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

Entry MakeEntry(const Shape& shape, const std::vector<std::pair<Box, std::int32_t>>& chunks) {
  Entry entry{.name = "w", .dtype = DType::kBF16, .shape = shape, .chunks = {}};
  for (const auto& [box, shard] : chunks) {
    Chunk& chunk = entry.chunks.emplace_back();
    chunk.box = box;
    chunk.shard = shard;
  }
  return entry;
}

std::string Text(const Result<LegacyShard>& shard) { return shard ? ToString(shard->shape) + " " + expr::Describe(shard->expr) : shard.error().ToString(); }

TEST(LegacyShards, GateAndUpOfARankAreJoined) {
  // Two tensor ranks on the second of two stages: shards 2 and 3. Listed in any order.
  const Entry entry = MakeEntry({8, 3}, {{{{4, 0}, {2, 3}}, 2}, {{{0, 0}, {2, 3}}, 2}, {{{2, 0}, {2, 3}}, 3}, {{{6, 0}, {2, 3}}, 3}});
  const expr::Expr leaf = expr::Leaf(0, DType::kBF16, {8, 3});
  EXPECT_EQ(Text(ShardOf(ChunksByRank(entry, 2, false), leaf, 0, 0, {})), "[4, 3] concat(slice[0:2, 0:3](0), slice[4:6, 0:3](0); axis 0)");
  EXPECT_EQ(Text(ShardOf(ChunksByRank(entry, 2, false), leaf, 1, 0, {})), "[4, 3] concat(slice[2:4, 0:3](0), slice[6:8, 0:3](0); axis 0)");
}

TEST(LegacyShards, WhatOneRankHoldsIsEveryRanks) {
  const Entry entry = MakeEntry({5}, {{{{0}, {5}}, 2}});
  const expr::Expr leaf = expr::Leaf(0, DType::kBF16, {5});
  EXPECT_EQ(Text(ShardOf(ChunksByRank(entry, 2, false), leaf, 1, 0, {})), "[5] 0");
}

TEST(LegacyShards, PicksALayer) {
  const Entry entry = MakeEntry({2, 4, 3}, {{{{0, 0, 0}, {1, 2, 3}}, 0}, {{{0, 2, 0}, {1, 2, 3}}, 1}, {{{1, 0, 0}, {1, 2, 3}}, 2}, {{{1, 2, 0}, {1, 2, 3}}, 3}});
  const expr::Expr leaf = expr::Leaf(0, DType::kBF16, {2, 4, 3});
  ASSERT_OK_AND_ASSIGN(const expr::Expr one, PartOf(leaf, {1, -1}));
  EXPECT_EQ(one->shape, (Shape{4, 3}));
  ASSERT_OK_AND_ASSIGN(const LegacyShard shard, ShardOf(ChunksByRank(entry, 2, true), one, 1, 0, {1, -1}));
  EXPECT_EQ(shard.shape, (Shape{2, 3}));
  EXPECT_THAT(expr::Describe(shard.expr), HasSubstr("1:2"));
  EXPECT_THAT(ShardOf(ChunksByRank(entry, 2, true), one, 1, 0, {2, -1}), IsError(ErrorCode::kUnsupported, HasSubstr("no rank holds")));
}

TEST(LegacyShards, OfAJoinTheOneInputIsTaken) {
  const expr::Expr a = expr::Leaf(0, DType::kBF16, {3, 4});
  const expr::Expr b = expr::Leaf(1, DType::kBF16, {2, 4});
  ASSERT_OK_AND_ASSIGN(const expr::Expr joined, expr::Concat({a, b}, 0));
  for (const auto& [layer, text] : {std::pair{2, "reshape[4](slice[2:3, 0:4](0))"}, {3, "reshape[4](slice[0:1, 0:4](1))"}, {4, "reshape[4](slice[1:2, 0:4](1))"}}) {
    ASSERT_OK_AND_ASSIGN(const expr::Expr one, PartOf(joined, {layer, -1}));
    EXPECT_EQ(expr::Describe(one), text);
  }
}

TEST(LegacyShards, PicksAnExpertOfALayer) {
  // [layer, expert, rows]: two expert ranks of two tensor ranks each, one chunk an expert.
  const Entry entry = MakeEntry({1, 2, 4}, {{{{0, 0, 0}, {1, 1, 2}}, 0}, {{{0, 0, 2}, {1, 1, 2}}, 1}, {{{0, 1, 0}, {1, 1, 2}}, 2}, {{{0, 1, 2}, {1, 1, 2}}, 3}});
  const expr::Expr leaf = expr::Leaf(0, DType::kBF16, {1, 2, 4});
  ASSERT_OK_AND_ASSIGN(const expr::Expr one, PartOf(leaf, {0, 1}));
  EXPECT_EQ(one->shape, (Shape{4}));
  ASSERT_OK_AND_ASSIGN(const LegacyShard shard, ShardOf(ChunksByRank(entry, 4, true), one, 3, 2, {0, 1}));
  EXPECT_EQ(shard.shape, (Shape{2}));
  EXPECT_EQ(expr::Describe(shard.expr), "slice[2:4](reshape[4](slice[1:2, 0:4](reshape[2, 4](0))))");
  EXPECT_THAT(ShardOf(ChunksByRank(entry, 4, true), one, 1, 0, {0, 1}), IsError(ErrorCode::kUnsupported, HasSubstr("no rank holds")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
