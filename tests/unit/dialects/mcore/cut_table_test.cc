// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/cut_table.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

std::vector<expr::Expr> Parts(int count, const Shape& shape) {
  std::vector<expr::Expr> parts;
  for (int i = 0; i < count; ++i) parts.push_back(expr::Leaf(i, DType::kBF16, shape));
  return parts;
}

TEST(CutTableTest, GateAndUpAreJoinedApart) {
  const std::optional<Cut> fc1 = FindCut("decoder.layers.3.mlp.linear_fc1.weight");
  ASSERT_OK_AND_ASSIGN(const expr::Expr gated, JoinRanks(Parts(2, {4, 3}), fc1, true));
  const auto of_gated = Elements(gated);
  for (std::int64_t row = 0; row < 8; ++row) {
    const std::int64_t rank = row % 4 / 2;
    EXPECT_EQ(of_gated.at({row, 1}), (std::pair<int, Dims>{static_cast<int>(rank), {row / 4 * 2 + row % 2, 1}})) << row;
  }
  ASSERT_OK_AND_ASSIGN(const expr::Expr plain, JoinRanks(Parts(2, {4, 3}), fc1, false));
  EXPECT_EQ(Elements(plain).at({5, 1}), (std::pair<int, Dims>{1, {1, 1}}));
}

TEST(CutTableTest, ColumnsAreJoinedAndReplicasTakenOnce) {
  ASSERT_OK_AND_ASSIGN(const expr::Expr proj, JoinRanks(Parts(2, {3, 2}), FindCut("x.self_attention.linear_proj.weight"), true));
  EXPECT_EQ(Elements(proj).at({2, 3}), (std::pair<int, Dims>{1, {2, 1}}));
  ASSERT_OK_AND_ASSIGN(const expr::Expr norm, JoinRanks(Parts(2, {3}), FindCut("decoder.final_layernorm.weight"), true));
  EXPECT_EQ(norm->leaf, 0);
}

TEST(CutTableTest, KnownKeysOnly) {
  for (const char* key : {"decoder.final_layernorm.weight", "a.self_attention.linear_qkv.layer_norm_weight", "a.mlp.linear_fc2.bias", "a.mlp.router.weight"}) {
    EXPECT_TRUE(IsReplicated(key)) << key;
    EXPECT_FALSE(FindCut(key)) << key;
  }
  for (const char* key : {"a.self_attention.linear_qkv.weight", "output_layer.weight", "adapter.weight"}) EXPECT_FALSE(IsReplicated(key)) << key;
}

TEST(CutTableTest, PartsThatDoNotFitAreRefused) {
  std::vector<expr::Expr> parts = Parts(2, {4, 3});
  parts[1] = expr::Leaf(1, DType::kBF16, {4, 2});
  EXPECT_THAT(JoinRanks(parts, std::nullopt, true), IsError(ErrorCode::kCorrupt, HasSubstr("[4, 2]")));
  parts[1] = expr::Leaf(1, DType::kF32, {4, 3});
  EXPECT_THAT(JoinRanks(parts, FindCut("output_layer.weight"), true), IsError(ErrorCode::kCorrupt, HasSubstr("do not fit")));
  EXPECT_THAT(JoinRanks(Parts(2, {3, 3}), FindCut("a.mlp.linear_fc1.weight"), true), IsError(ErrorCode::kCorrupt, HasSubstr("two halves")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
