// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "expr/pull_back.h"
#include "unit/expr/naive_eval.h"
#include "unit/expr/random_tree.h"

namespace crossdock::expr {
namespace {

/// The box of a side, at random larger than the piece.
Box Around(RandomTree& tree, const Box& bounds, const Shape& shape) {
  Box box = bounds;
  for (std::size_t a = 0; a < box.rank(); ++a) {
    const std::int64_t before = tree.Between(0, box.offsets[a]);
    const std::int64_t after = tree.Between(0, shape[a] - box.offsets[a] - box.sizes[a]);
    box.offsets[a] -= before;
    box.sizes[a] += before + after;
  }
  return box;
}

std::int64_t PositionIn(const Box& box, Dims index) {
  for (std::size_t a = 0; a < index.size(); ++a) index[a] -= box.offsets[a];
  return RowMajor(box.sizes, index);
}

/// (from, to) of each element of a copy, in the order of its loops.
std::vector<std::pair<std::int64_t, std::int64_t>> Elements(const StridedCopy& copy) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out{{copy.from, copy.to}};
  for (const StridedCopy::Dim& d : copy.dims) {
    std::vector<std::pair<std::int64_t, std::int64_t>> next;
    for (const auto& [from, to] : out) {
      for (std::int64_t i = 0; i < d.count; ++i) next.emplace_back(from + i * d.from_stride, to + i * d.to_stride);
    }
    out = std::move(next);
  }
  return out;
}

TEST(ToCopy, MovesEachElementOfThePiece) {
  ForSeeds(1000, [](std::uint64_t seed) {
    RandomTree tree(seed, {});
    const Expr root = tree.Grow();
    SCOPED_TRACE(Describe(root));
    const std::map<int, Shape> shapes = LeafShapes(root);
    for (const Piece& piece : PullBack(root, tree.RandomBox(root->shape))) {
      const Box target_box = Around(tree, TargetBounds(piece), root->shape);
      const bool fill = piece.leaf < 0;
      const Box leaf_box = fill ? Box{} : Around(tree, LeafBounds(piece), shapes.at(piece.leaf));
      const StridedCopy copy = ToCopy(piece, leaf_box, target_box);
      std::vector<std::pair<std::int64_t, std::int64_t>> expected;
      ForEachElement(piece, [&](const Dims& t, const Dims& l) {
        expected.emplace_back(fill ? 0 : PositionIn(leaf_box, l), PositionIn(target_box, t));
      });
      EXPECT_EQ(Elements(copy), expected);
      for (std::size_t k = 1; k < copy.dims.size(); ++k) {
        const StridedCopy::Dim &outer = copy.dims[k - 1], &inner = copy.dims[k];
        EXPECT_FALSE(outer.from_stride == inner.count * inner.from_stride &&
                     outer.to_stride == inner.count * inner.to_stride)
            << "loops " << k - 1 << " and " << k;
      }
    }
  });
}

TEST(ToCopy, MergesRowsThatAreContiguousOnBothSides) {
  const Expr leaf = Leaf(0, DType::kF32, {6, 8});
  const std::vector<Piece> pieces = PullBack(leaf, {{2, 0}, {3, 8}});
  ASSERT_EQ(pieces.size(), 1U);
  const StridedCopy whole = ToCopy(pieces[0], Box::Whole({6, 8}), {{2, 0}, {3, 8}});
  EXPECT_EQ(whole.from, 16);
  EXPECT_EQ(whole.to, 0);
  ASSERT_EQ(whole.dims.size(), 1U);
  EXPECT_EQ(whole.dims[0].count, 24);
  const StridedCopy apart = ToCopy(pieces[0], Box::Whole({6, 8}), Box::Whole({6, 8}));
  EXPECT_EQ(apart.to, 16);
}

}  // namespace
}  // namespace crossdock::expr
