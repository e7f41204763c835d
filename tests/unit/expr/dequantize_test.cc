// SPDX-License-Identifier: Apache-2.0
#include "expr/dequantize.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expr/pull_back.h"
#include "result_matchers.h"
#include "unit/expr/naive_eval.h"
#include "unit/expr/random_tree.h"

namespace crossdock::expr {
namespace {

using testing::HasSubstr;

Expr Q(Shape shape) { return Leaf(0, DType::kF8E4M3, shape); }
Expr S(Shape shape, DType dtype = DType::kF32) { return Leaf(1, dtype, shape); }

TEST(Dequantize, TakesTheShapesThatScalesComeIn) {
  const auto made = [](Shape q, Shape s, BlockFormat block) { return Dequantize(Q(q), S(s), block, DType::kBF16); };
  EXPECT_THAT(made({300, 200}, {3, 2}, {128, 128}), IsOk());  // edge blocks
  EXPECT_THAT(made({3, 200}, {3}, {1, 200}), IsOk());
  EXPECT_THAT(made({3, 200}, {3, 1}, {1, 200}), IsOk());
  EXPECT_THAT(made({3, 200}, {}, {3, 200}), IsOk());
  EXPECT_THAT(made({3, 200}, {1}, {1000, 1000}), IsOk());  // a block larger than the tensor
  EXPECT_THAT(made({5, 300, 200}, {5, 3, 2}, {128, 128}), IsOk());
  EXPECT_THAT(made({5, 300, 200}, {5, 300}, {1, 200}), IsOk());
  EXPECT_THAT(made({5, 300, 200}, {1}, {300, 200}), IsOk());
  EXPECT_THAT(made({300, 200}, {2, 3}, {128, 128}), IsError(ErrorCode::kCorrupt, HasSubstr("[3, 2]")));
  EXPECT_THAT(made({300, 200}, {1}, {128, 128}), IsError(ErrorCode::kCorrupt, HasSubstr("scales")));
  EXPECT_THAT(made({300, 200}, {3, 2}, {0, 128}), IsError(ErrorCode::kUsage, HasSubstr("extent")));
  EXPECT_THAT(made({300}, {3}, {128, 128}), IsError(ErrorCode::kUnsupported, HasSubstr("two axes")));
}

TEST(Dequantize, RefusesOtherTypesAndWhatIsNotStored) {
  const Expr q = Q({4, 4});
  EXPECT_THAT(Dequantize(Leaf(0, DType::kI8, {4, 4}), S({}), {4, 4}, DType::kBF16), IsError(ErrorCode::kUnsupported, HasSubstr("I8")));
  EXPECT_THAT(Dequantize(q, S({}, DType::kI32), {4, 4}, DType::kBF16), IsError(ErrorCode::kUnsupported, HasSubstr("I32")));
  EXPECT_THAT(Dequantize(q, S({}), {4, 4}, DType::kF64), IsError(ErrorCode::kUnsupported, HasSubstr("F64")));
  ASSERT_OK_AND_ASSIGN(const Expr turned, Transpose(q, {1, 0}));
  EXPECT_THAT(Dequantize(turned, S({}), {4, 4}, DType::kBF16), IsError(ErrorCode::kUnsupported, HasSubstr("stored")));
}

TEST(Dequantize, HasNoInverseAndNoMeaningForMoments) {
  ASSERT_OK_AND_ASSIGN(const Expr w, Dequantize(Q({4, 4}), S({}), {4, 4}, DType::kBF16));
  EXPECT_THAT(Inverse(w, 0), IsError(ErrorCode::kUnsupported, HasSubstr("no inverse")));
  EXPECT_THAT(ForSlot(w, Slot::kAdamMu), IsError(ErrorCode::kUnsupported, HasSubstr("params")));
  EXPECT_FALSE(IsInexact(w));
  EXPECT_EQ(Describe(w), "dequantize[4x4](0, 1)");
  EXPECT_EQ(DequantizedType(Cast(w, DType::kF32).value()), DType::kBF16);
  EXPECT_EQ(DequantizedType(Q({4, 4})), std::nullopt);
}

TEST(DequantizeMxfp4, MakesThirtyTwoElementsOfAGroup) {
  const Expr blocks = Leaf(0, DType::kU8, {2, 5, 3, 16});
  ASSERT_OK_AND_ASSIGN(const Expr w, DequantizeMxfp4(blocks, Leaf(1, DType::kU8, {2, 5, 3}), DType::kBF16));
  EXPECT_EQ(w->shape, (Shape{2, 5, 96}));
  EXPECT_EQ(Describe(w), "dequantize[mxfp4](0, 1)");
  EXPECT_THAT(DequantizeMxfp4(blocks, Leaf(1, DType::kU8, {2, 5}), DType::kBF16), IsError(ErrorCode::kCorrupt, HasSubstr("[2, 5, 3]")));
  EXPECT_THAT(DequantizeMxfp4(Leaf(0, DType::kU8, {2, 8}), Leaf(1, DType::kU8, {2}), DType::kBF16),
              IsError(ErrorCode::kUnsupported, HasSubstr("16")));
  const StoredBoxes stored = StoredBoxesOf(*w, {{1, 2, 31}, {1, 3, 2}});
  EXPECT_EQ(stored.values, (Box{{1, 2, 0, 0}, {1, 3, 2, 16}}));
  EXPECT_EQ(stored.scales, (Box{{1, 2, 0}, {1, 3, 2}}));
  const DequantizeTile tile = TileOf(*w, {{1, 2, 31}, {1, 3, 2}});
  EXPECT_EQ(tile.rows, 3);
  EXPECT_EQ(tile.first_col, 31);
  EXPECT_EQ(tile.scale_cols, 2);
}

/// Where the scale of an element lies, by division.
Dims ScaleOf(const Node& node, Dims at) {
  const Shape& scales = node.inputs[1]->shape;
  if (CheckedCount(scales) == 1) return Dims::Filled(scales.size(), 0);
  at[at.size() - 2] /= node.block().rows;
  at[at.size() - 1] /= node.block().cols;
  if (scales.size() < at.size()) at.erase(at.size() - 1);
  return at;
}

Box PointAt(const Dims& at) { return {at, Dims::Filled(at.size(), 1)}; }

TEST(StoredBoxesOf, AreTheSmallestThatHoldWhatABoxNeeds) {
  ForSeeds(300, [](std::uint64_t seed) {
    RandomTree random(seed, {});
    const std::int64_t lead = random.Between(1, 3);
    const Shape shape = random.Between(0, 1) == 0 ? Shape{random.Between(1, 20), random.Between(1, 20)}
                                                  : Shape{lead, random.Between(1, 9), random.Between(1, 9)};
    const BlockFormat block{random.Between(1, 7), random.Between(1, 7)};
    Shape grid = shape;
    grid[shape.size() - 2] = (shape[shape.size() - 2] + block.rows - 1) / block.rows;
    grid[shape.size() - 1] = (shape.back() + block.cols - 1) / block.cols;
    if (grid.back() == 1 && random.Between(0, 1) == 0) grid.erase(grid.size() - 1);
    ASSERT_OK_AND_ASSIGN(const Expr w, Dequantize(Q(shape), S(grid), block, DType::kBF16));
    const Box box = random.RandomBox(shape);
    const StoredBoxes stored = StoredBoxesOf(*w, box);
    const DequantizeTile tile = TileOf(*w, box);
    EXPECT_EQ(stored.values, box);
    EXPECT_EQ(tile.batches * tile.rows * tile.cols, box.count());
    Dims low = ScaleOf(*w, box.offsets), high = low;
    std::int64_t number = 0;
    ForEachIndex(box.sizes, [&](Dims at) {
      const Dims inside = at;
      for (std::size_t a = 0; a < at.size(); ++a) at[a] += box.offsets[a];
      const Dims scale = ScaleOf(*w, at);
      ASSERT_TRUE(stored.scales.Contains(PointAt(scale))) << ToString(stored.scales) << ToString(scale);
      for (std::size_t a = 0; a < scale.size(); ++a) high[a] = std::max(high[a], scale[a]);
      // The tile's arithmetic names the same scale.
      const std::int64_t c = inside.back(), r = inside[inside.size() - 2];
      const std::int64_t b = number++ / (tile.rows * tile.cols);
      Dims in_box = scale;
      for (std::size_t a = 0; a < scale.size(); ++a) in_box[a] -= stored.scales.offsets[a];
      EXPECT_EQ(b * tile.scale_batch + (tile.first_row + r) / tile.block_rows * tile.scale_cols + (tile.first_col + c) / tile.block_cols,
                RowMajor(stored.scales.sizes, in_box));
    });
    EXPECT_EQ(stored.scales.offsets, low);
    for (std::size_t a = 0; a < low.size(); ++a) EXPECT_EQ(stored.scales.sizes[a], high[a] - low[a] + 1);
  });
}

TEST(MadeOf, IsEveryElementWhoseValueAndScaleAreThere) {
  ForSeeds(200, [](std::uint64_t seed) {
    RandomTree random(seed, {});
    const Shape shape{random.Between(1, 3), random.Between(1, 12), random.Between(1, 12)};
    const BlockFormat block{random.Between(1, 5), random.Between(1, 5)};
    const Shape grid{shape[0], (shape[1] + block.rows - 1) / block.rows, (shape[2] + block.cols - 1) / block.cols};
    ASSERT_OK_AND_ASSIGN(const Expr w, Dequantize(Q(shape), S(grid), block, DType::kBF16));
    const Box values = random.RandomBox(shape), scales = random.RandomBox(grid);
    const std::optional<Box> made = MadeOf(*w, values, scales);
    ForEachIndex(shape, [&](const Dims& at) {
      const bool both = values.Contains(PointAt(at)) && scales.Contains(PointAt(ScaleOf(*w, at)));
      EXPECT_EQ(made && made->Contains(PointAt(at)), both) << ToString(at);
    });
  });
}

TEST(PullBack, StopsAtADequantizationAndKeepsItsNode) {
  ASSERT_OK_AND_ASSIGN(const Expr w, Dequantize(Q({6, 4}), S({3, 2}), {2, 2}, DType::kBF16));
  ASSERT_OK_AND_ASSIGN(const Expr turned, Transpose(w, {1, 0}));
  ASSERT_OK_AND_ASSIGN(const Expr wide, Cast(turned, DType::kF32));
  const std::vector<Piece> pieces = PullBack(wide, {{1, 2}, {2, 3}});
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].leaf, 0);
  EXPECT_EQ(pieces[0].dequantize, w.get());
  EXPECT_EQ(LeafBounds(pieces[0]), (Box{{2, 1}, {3, 2}}));
  ASSERT_EQ(pieces[0].ops.size(), 1U);
  EXPECT_EQ(pieces[0].ops[0].from, DType::kBF16);
  for (const Piece& part : ClipLeaf(pieces[0], {{3, 0}, {3, 4}})) EXPECT_EQ(part.dequantize, w.get());
  for (const Piece& part : ClipTarget(pieces[0], {{1, 3}, {1, 1}})) EXPECT_EQ(part.dequantize, w.get());
}

TEST(ShardBoxes, CutADequantizedTensorAsAnyOther) {
  ASSERT_OK_AND_ASSIGN(const Expr w, Dequantize(Q({6, 4}), S({}), {6, 4}, DType::kBF16));
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(Shard(w, 0), 2, 1));
  EXPECT_EQ(boxes, (std::vector<Box>{{{3, 0}, {3, 4}}}));
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> whole, ShardBoxes(w, 2, 1));
  EXPECT_EQ(whole, (std::vector<Box>{Box::Whole({6, 4})}));
}

}  // namespace
}  // namespace crossdock::expr
