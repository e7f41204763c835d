// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_sections.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDeltaInProj = "decoder.layers.0.self_attention.in_proj.weight";

/// 2 key heads of 3, 4 value heads of 5.
Value DeltaArgs() {
  Value args = Value::MakeDict();
  args.Set("linear_num_key_heads", Value(2));
  args.Set("linear_num_value_heads", Value(4));
  args.Set("linear_key_head_dim", Value(3));
  args.Set("linear_value_head_dim", Value(5));
  return args;
}

TEST(LegacySectionsTest, SizesFollowFromTheArguments) {
  std::vector<std::int64_t> rows;
  for (const Section& section : SectionsOf(kDeltaInProj, DeltaArgs())) rows.push_back(section.rows);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{6, 6, 20, 20, 4, 4}));
  EXPECT_EQ(SectionsOf("self_attention.conv1d.weight", DeltaArgs()).size(), 3U);
  EXPECT_EQ(SectionsOf("self_attention.in_proj.weight", Value::MakeDict())[0].rows, 2048);   // Megatron's own defaults
  for (const char* other : {"self_attention.linear_qkv.weight", "self_attention.in_proj.layer_norm_weight", "conv1d.weight"}) EXPECT_TRUE(SectionsOf(other, DeltaArgs()).empty()) << other;
}

TEST(LegacySectionsTest, ARankHasItsPartOfEachSection) {
  const std::vector<Section> sections = SectionsOf(kDeltaInProj, DeltaArgs());
  const expr::Expr local = expr::Leaf(0, DType::kBF16, {30, 7});
  ASSERT_OK_AND_ASSIGN(const expr::Expr value, SectionOfRank(local, sections, 2, 2));
  EXPECT_EQ(value->shape, (Shape{10, 7}));
  EXPECT_EQ(Elements(value).at({0, 6}), (std::pair<int, Dims>{0, {6, 6}}));
  EXPECT_THAT(SectionOfRank(local, sections, 2, 1), IsError(ErrorCode::kCorrupt, HasSubstr("rows")));
  EXPECT_THAT(SectionOfRank(local, sections, 2, 4), IsError(ErrorCode::kCorrupt, HasSubstr("rows")));
}

TEST(LegacySectionsTest, SectionsBecomeOneTensorWhoseRanksHoldTheirParts) {
  TargetState target;
  int leaf = 0;
  for (const auto& [section, rows] : {std::pair("alpha", 4), std::pair("beta", 4), std::pair("key", 6), std::pair("query", 6), std::pair("value", 20), std::pair("z", 20)}) {
    Entry entry{std::string(kDeltaInProj) + "." + section, Slot::kParam, DType::kBF16, {rows, 7}, {}};
    for (int rank = 0; rank < 2; ++rank) {
      Chunk chunk;
      chunk.box = Box{{rank * rows / 2, 0}, {rows / 2, 7}};
      chunk.shard = rank;
      entry.chunks.push_back(chunk);
    }
    target.catalog.entries.push_back(std::move(entry));
    target.exprs.push_back(expr::Leaf(leaf++, DType::kBF16, {rows, 7}));
  }
  target.catalog.entries.push_back({"decoder.layers.0.self_attention.dt_bias", Slot::kParam, DType::kF32, {4}, {}});
  target.exprs.push_back(expr::Leaf(leaf, DType::kF32, {4}));
  ASSERT_THAT(FuseSections(&target), IsOk());
  ASSERT_EQ(target.catalog.entries.size(), 2U);
  EXPECT_EQ(target.catalog.entries[0].name, "decoder.layers.0.self_attention.dt_bias");
  const Entry& whole = target.catalog.entries[1];
  EXPECT_EQ(whole.name, kDeltaInProj);
  EXPECT_EQ(whole.shape, (Shape{60, 7}));
  std::vector<Box> boxes;
  std::vector<std::int64_t> second;      // where the parts of rank 1 begin
  for (const Chunk& chunk : whole.chunks) {
    boxes.push_back(chunk.box);
    if (chunk.shard == 1) second.push_back(chunk.box.offsets[0]);
  }
  EXPECT_THAT(CheckCover(whole.shape, boxes), IsOk());
  EXPECT_EQ(second, (std::vector<std::int64_t>{3, 9, 22, 42, 54, 58}));
  EXPECT_EQ(Elements(target.exprs[1]).at({12, 0}), (std::pair<int, Dims>{4, {0, 0}}));   // the first value row
}

}  // namespace
}  // namespace crossdock::dialects::mcore
