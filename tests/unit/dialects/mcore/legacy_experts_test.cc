// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_experts.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

constexpr Cut kFc1{1, true, true};
constexpr Cut kFc2{2, false, true};

/// Leaves numbered in the order of expert ranks, tensor ranks within an expert, and local experts.
ExpertParts Parts(int expert_ranks, int within, int locals, const Shape& shape, std::int64_t in_memory = 0) {
  ExpertParts parts;
  parts.memory = in_memory > 0;
  parts.experts = in_memory;
  int leaf = 0;
  for (int e = 0; e < expert_ranks; ++e) {
    auto& rank = parts.parts.emplace_back();
    for (int t = 0; t < within; ++t) {
      auto& one = rank.emplace_back();
      for (int i = 0; i < locals; ++i) one.push_back(expr::Leaf(leaf++, DType::kBF16, shape));
    }
  }
  return parts;
}

using Place = std::pair<int, Dims>;

TEST(LegacyExperts, ExpertsOfARankFollowThoseOfTheRanksBefore) {
  // 2 expert ranks of 3 experts, each cut in two; f = 4, h = 5: a rank's fc1 is [2 rows of gate; 2 rows of up].
  ASSERT_OK_AND_ASSIGN(const expr::Expr fc1, JoinExperts(Parts(2, 2, 3, {4, 5}), kFc1, true));
  ASSERT_EQ(fc1->shape, (Shape{6, 8, 5}));
  const auto from = Elements(fc1);
  EXPECT_EQ(from.at({4, 0, 2}), (Place{7, {0, 2}}));    // rank 1's second expert: leaves 6, 7, 8 are its first part
  EXPECT_EQ(from.at({4, 3, 2}), (Place{10, {1, 2}}));   // the gate's upper half lies on the second rank within
  EXPECT_EQ(from.at({4, 4, 2}), (Place{7, {2, 2}}));    // then the up rows
  EXPECT_EQ(from.at({4, 7, 2}), (Place{10, {3, 2}}));
  ASSERT_OK_AND_ASSIGN(const expr::Expr fc2, JoinExperts(Parts(2, 2, 3, {5, 2}), kFc2, true));
  ASSERT_EQ(fc2->shape, (Shape{6, 5, 4}));
  EXPECT_EQ(Elements(fc2).at({1, 4, 3}), (Place{4, {4, 1}}));
}

TEST(LegacyExperts, OneMatrixOfAllExpertsIsReadAsItsMemoryLies) {
  // weight1 [h 5, 3 experts * 2f 4] is [3, 5, 4] in memory: element (e, row, column) lies at e * 20 + column * 4 + row.
  ASSERT_OK_AND_ASSIGN(const expr::Expr fc1, JoinExperts(Parts(2, 1, 1, {5, 12}, 3), kFc1, true));
  ASSERT_EQ(fc1->shape, (Shape{6, 4, 5}));
  const std::int64_t at = 1 * 20 + 2 * 4 + 3;
  EXPECT_EQ(Elements(fc1).at({4, 3, 2}), (Place{1, {at / 12, at % 12}}));
  // weight2 [3 experts * f 2, h 5] is [3, 2, 5].
  ASSERT_OK_AND_ASSIGN(const expr::Expr fc2, JoinExperts(Parts(2, 1, 1, {6, 5}, 3), kFc2, true));
  ASSERT_EQ(fc2->shape, (Shape{6, 5, 2}));
  EXPECT_EQ(Elements(fc2).at({4, 3, 1}), (Place{1, {3, 3}}));
}

TEST(LegacyExperts, LayersOfExpertsAreAJoinOfJoins) {
  ASSERT_OK_AND_ASSIGN(const expr::Expr first, JoinExperts(Parts(1, 1, 3, {5, 2}), kFc2, true));
  ASSERT_OK_AND_ASSIGN(const expr::Expr both, StackLayers({first, first}));
  ASSERT_EQ(both->shape, (Shape{2, 3, 5, 2}));
  EXPECT_EQ(Elements(both).at({1, 2, 4, 1}), (Place{2, {4, 1}}));
  ASSERT_OK_AND_ASSIGN(const expr::Expr expert, expr::Slice(both, {{1, 2, 0, 0}, {1, 1, 5, 2}}));
  EXPECT_EQ(expr::Describe(expr::Simplify(expert)), "reshape[1, 1, 5, 2](2)");
}

TEST(LegacyExperts, RefusesPartsThatDoNotFit) {
  EXPECT_THAT(JoinExperts(Parts(1, 1, 1, {5, 12}, 5), kFc1, true), IsError(ErrorCode::kCorrupt, HasSubstr("does not divide")));
  EXPECT_THAT(JoinExperts(Parts(1, 1, 1, {12}, 3), kFc1, true), IsError(ErrorCode::kCorrupt, HasSubstr("does not divide")));
  ExpertParts unlike = Parts(1, 1, 2, {4, 5});
  unlike.parts[0][0][1] = expr::Leaf(1, DType::kBF16, {6, 5});
  EXPECT_THAT(JoinExperts(unlike, kFc1, true), IsError(ErrorCode::kCorrupt, HasSubstr("not alike")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
