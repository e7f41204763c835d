// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "expr/expr.h"
#include "result_matchers.h"
#include "unit/expr/naive_eval.h"
#include "unit/expr/random_tree.h"

namespace crossdock::expr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// How often the boxes cover each element of a shape.
std::vector<int> Cover(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<int> hits(static_cast<std::size_t>(CheckedCount(shape)), 0);
  for (const Box& box : boxes) {
    EXPECT_TRUE(box.FitsIn(shape)) << ToString(box);
    ForEachIndex(box.sizes, [&](Dims index) {
      for (std::size_t a = 0; a < index.size(); ++a) index[a] += box.offsets[a];
      ++hits[static_cast<std::size_t>(RowMajor(shape, index))];
    });
  }
  return hits;
}

TEST(ShardBoxes, GiveEachRankWhatTheMarksSay) {
  ForSeeds(2000, [](std::uint64_t seed) {
    RandomTree tree(seed, {.marks = true});
    const Expr root = tree.Grow();
    const int size = static_cast<int>(tree.Between(1, 3));
    SCOPED_TRACE(Describe(root) + " over " + std::to_string(size));
    const std::vector<Cell> cells = EvaluateOwners(root, size);
    const bool divides = std::none_of(cells.begin(), cells.end(), [](const Cell& c) { return c.owner == kNoOwner; });
    for (int rank = 0; rank < size; ++rank) {
      const Result<std::vector<Box>> boxes = ShardBoxes(root, size, rank);
      if (!divides) {
        ASSERT_THAT(boxes, IsError(ErrorCode::kUsage, HasSubstr("does not divide")));
        continue;
      }
      ASSERT_THAT(boxes, IsOk());
      std::vector<int> expected;
      for (const Cell& c : cells) expected.push_back(c.owner == rank || c.owner == -1 ? 1 : 0);
      ASSERT_EQ(Cover(root->shape, *boxes), expected);
      ASSERT_TRUE(std::is_sorted(boxes->begin(), boxes->end()));
    }
  });
}

TEST(ShardBoxes, OfGateUpAreTwo) {
  const Expr gate = Shard(Leaf(0, DType::kF32, {8, 3}), 0), up = Shard(Leaf(1, DType::kF32, {8, 3}), 0);
  const Expr root = Concat({gate, up}, 0).value();
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(root, 4, 1));
  EXPECT_THAT(boxes, ElementsAre(Box{{2, 0}, {2, 3}}, Box{{10, 0}, {2, 3}}));
}

TEST(ShardBoxes, OfAStackAreOneALayer) {
  const Expr layer = Shard(Leaf(0, DType::kF32, {4, 6}), 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(Stack({layer, layer, layer}, 0).value(), 2, 1));
  EXPECT_THAT(boxes, ElementsAre(Box{{0, 0, 3}, {1, 4, 3}}, Box{{1, 0, 3}, {1, 4, 3}}, Box{{2, 0, 3}, {1, 4, 3}}));
}

TEST(ShardBoxes, OfWholeQueryGroupsIsOne) {
  const Expr groups = Shard(Leaf(0, DType::kF32, {4, 6, 8, 16}), 0);
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(Reshape(groups, {192, 16}).value(), 2, 1));
  EXPECT_THAT(boxes, ElementsAre(Box{{96, 0}, {96, 16}}));
}

TEST(ShardBoxes, OfAnUnmarkedTensorIsTheWhole) {
  const Expr leaf = Leaf(0, DType::kF32, {4, 6});
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(Transpose(leaf, {1, 0}).value(), 2, 1));
  EXPECT_THAT(boxes, ElementsAre(Box::Whole({6, 4})));
}

TEST(ShardBoxes, OfAQuantizedPairBelongTogether) {
  const Expr leaf = Shard(Leaf(0, DType::kF32, {8, 5}), 0);
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> q, ShardBoxes(QuantizeValues(leaf, {2, 2}).value(), 2, 1));
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> s, ShardBoxes(QuantizeScales(leaf, {2, 2}).value(), 2, 1));
  EXPECT_THAT(q, ElementsAre(Box{{4, 0}, {4, 5}}));
  EXPECT_THAT(s, ElementsAre(Box{{2, 0}, {2, 3}}));
  EXPECT_THAT(ShardBoxes(QuantizeScales(leaf, {3, 2}).value(), 2, 1),
              IsError(ErrorCode::kUsage, HasSubstr("inside a quantization block")));
}

TEST(ShardBoxes, RefuseWhatDoesNotDivide) {
  const Expr root = Shard(Leaf(0, DType::kF32, {6, 5}), 0);
  EXPECT_THAT(ShardBoxes(root, 4, 0), IsError(ErrorCode::kUsage, HasSubstr("divisible by 4")));
  EXPECT_THAT(ShardBoxes(root, 2, 2), IsError(ErrorCode::kUsage, HasSubstr("outside its parallel group")));
  EXPECT_THAT(ShardBoxes(root, 0, 0), IsError(ErrorCode::kUsage, HasSubstr("outside its parallel group")));
}

}  // namespace
}  // namespace crossdock::expr
