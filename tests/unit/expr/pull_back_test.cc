// SPDX-License-Identifier: Apache-2.0
#include "expr/pull_back.h"

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "unit/expr/naive_eval.h"
#include "unit/expr/random_tree.h"

namespace crossdock::expr {
namespace {

/// The cells of a box, from those of the whole root.
std::vector<Cell> CellsIn(const Expr& root, const std::vector<Cell>& cells, const Box& box) {
  std::vector<Cell> out;
  ForEachIndex(box.sizes, [&](Dims index) {
    for (std::size_t a = 0; a < index.size(); ++a) index[a] += box.offsets[a];
    out.push_back(cells[static_cast<std::size_t>(RowMajor(root->shape, index))]);
  });
  return out;
}

void CheckBoxes(std::uint64_t seed, TreeOptions options, int boxes) {
  RandomTree tree(seed, options);
  const Expr root = tree.Grow();
  SCOPED_TRACE(Describe(root));
  const std::vector<Cell> all = Evaluate(root);
  for (int i = 0; i < boxes; ++i) {
    const Box box = i == 0 ? Box::Whole(root->shape) : tree.RandomBox(root->shape);
    SCOPED_TRACE(ToString(box));
    ASSERT_EQ(CellsOfPieces(root, box, PullBack(root, box)), CellsIn(root, all, box));
  }
}

TEST(PullBack, AgreesWithTheNaiveEvaluatorOnMovements) {
  ForSeeds(2000, [](std::uint64_t seed) { CheckBoxes(seed, {}, 3); });
}

TEST(PullBack, AgreesWithTheNaiveEvaluatorOnComputeAndMarks) {
  ForSeeds(1000, [](std::uint64_t seed) { CheckBoxes(seed, {.compute = true, .marks = true}, 3); });
}

TEST(PullBack, AgreesWithTheNaiveEvaluatorOnDeepTrees) {
  ForSeeds(150, [](std::uint64_t seed) { CheckBoxes(seed, {.slices = false, .depth = 10}, 2); });
}

TEST(PullBack, OfAnEmptyBoxHasNoPieces) {
  const Expr root = Pad(Leaf(0, DType::kF32, {0, 3}), {0, 0}, {0, 4}).value();
  EXPECT_TRUE(PullBack(root, Box::Whole(root->shape)).empty());
}

TEST(PullBack, OfAScalarIsOneElement) {
  const Expr root = Reshape(Leaf(4, DType::kF32, {1, 1}), {}).value();
  const std::vector<Piece> pieces = PullBack(root, Box::Whole({}));
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].leaf, 4);
  EXPECT_EQ(pieces[0].count(), 1);
  EXPECT_TRUE(pieces[0].loops.empty());
  EXPECT_EQ(pieces[0].leaf_origin, Dims({0, 0}));
}

TEST(PullBack, SkipsInputsWithoutElements) {
  const Expr root = Concat({Leaf(0, DType::kF32, {0, 2}), Leaf(1, DType::kF32, {3, 2}), Leaf(2, DType::kF32, {0, 2}),
                            Leaf(3, DType::kF32, {1, 2})},
                           0)
                        .value();
  const std::vector<Piece> pieces = PullBack(root, Box::Whole(root->shape));
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].leaf, 1);
  EXPECT_EQ(pieces[1].leaf, 3);
}

TEST(PullBack, GivesComputeStepsInnermostFirst) {
  const Expr leaf = Leaf(0, DType::kBF16, {2});
  const Expr root = Cast(Offset(Scale(Cast(leaf, DType::kF32).value(), 2.0).value(), 1.0).value(), DType::kF16).value();
  const std::vector<Piece> pieces = PullBack(root, Box::Whole({2}));
  ASSERT_EQ(pieces.size(), 1U);
  std::vector<std::string> ops;
  for (const ElementOp& op : pieces[0].ops) ops.push_back(SpellOp(op));
  EXPECT_EQ(ops, (std::vector<std::string>{"cast BF16 F32", "scale 2", "offset 1", "cast F32 F16"}));
}

// A stack so deep that walking all inputs for each layer would take minutes.
TEST(PullBack, OfOneLayerLooksAtThatLayerOnly) {
  constexpr int kLayers = 50'000;
  std::vector<Expr> layers;
  for (int i = 0; i < kLayers; ++i) layers.push_back(Leaf(i, DType::kF32, {4, 3}));
  const Expr root = Stack(layers, 1).value();
  for (int i = 0; i < kLayers; ++i) {
    const std::vector<Piece> pieces = PullBack(root, {{0, i, 0}, {4, 1, 3}});
    ASSERT_EQ(pieces.size(), 1U);
    ASSERT_EQ(pieces[0].leaf, i);
    ASSERT_EQ(pieces[0].count(), 12);
  }
}

// Pieces are strided boxes, never runs: their number does not grow with the sizes.
TEST(PullBack, OfATransposedHeadAxisIsOnePiece) {
  const Expr leaf = Leaf(0, DType::kF32, {4096, 4096});
  const Expr root = Reshape(Transpose(leaf, {1, 0}).value(), {4096, 32, 128}).value();
  EXPECT_EQ(PullBack(root, {{0, 3, 0}, {4096, 5, 128}}).size(), 1U);
}

using Pair = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;

std::multiset<Pair> Pairs(const std::vector<Piece>& pieces) {
  std::multiset<Pair> out;
  for (const Piece& p : pieces) {
    ForEachElement(p, [&](const Dims& t, const Dims& l) { out.insert({{t.begin(), t.end()}, {l.begin(), l.end()}}); });
  }
  return out;
}

/// Two halves of a tensor along an axis.
std::array<Box, 2> Halves(const Shape& shape, std::size_t axis, std::int64_t at) {
  Box low = Box::Whole(shape), high = Box::Whole(shape);
  low.sizes[axis] = at;
  high.offsets[axis] = at;
  high.sizes[axis] -= at;
  return {low, high};
}

void CheckClip(RandomTree& tree, const Piece& piece, const Shape& shape, bool leaf_side) {
  if (shape.empty()) return;
  const auto axis = static_cast<std::size_t>(tree.Between(0, static_cast<std::int64_t>(shape.size()) - 1));
  std::vector<Piece> parts;
  for (const Box& half : Halves(shape, axis, tree.Between(0, shape[axis]))) {
    for (const Piece& part : leaf_side ? ClipLeaf(piece, half) : ClipTarget(piece, half)) {
      EXPECT_TRUE(half.Contains(leaf_side ? LeafBounds(part) : TargetBounds(part)));
      EXPECT_EQ(part.leaf, piece.leaf);
      EXPECT_EQ(part.ops.size(), piece.ops.size());
      parts.push_back(part);
    }
  }
  EXPECT_EQ(Pairs(parts), Pairs({piece}));
  const Box box = tree.RandomBox(shape);
  std::multiset<Pair> inside;
  for (const Pair& p : Pairs({piece})) {
    const Dims index = Dims::FromSpan(leaf_side ? p.second : p.first).value();
    if (box.Contains({index, Dims::Filled(index.size(), 1)})) inside.insert(p);
  }
  EXPECT_EQ(Pairs(leaf_side ? ClipLeaf(piece, box) : ClipTarget(piece, box)), inside);
}

TEST(Clip, PartitionsAPieceOnEitherSide) {
  ForSeeds(1500, [](std::uint64_t seed) {
    RandomTree tree(seed, {.compute = true});
    const Expr root = tree.Grow();
    SCOPED_TRACE(Describe(root));
    const std::map<int, Shape> shapes = LeafShapes(root);
    for (const Piece& piece : PullBack(root, tree.RandomBox(root->shape))) {
      CheckClip(tree, piece, root->shape, false);
      if (piece.leaf >= 0) CheckClip(tree, piece, shapes.at(piece.leaf), true);
    }
  });
}

TEST(Clip, OfAStridedPieceIsFewPieces) {
  // Heads of a grouped tensor: rows 0..1 of each group of 3, 4 rows a head; the cut falls inside a head.
  const Piece piece{0, {0}, {0}, {{8, 0, 8, 0, 12}, {8, 0, 1, 0, 1}}, {}};
  EXPECT_EQ(ClipLeaf(piece, {{5}, {50}}).size(), 3U);
  EXPECT_EQ(ClipLeaf(piece, {{8}, {4}}).size(), 0U);
  EXPECT_EQ(ClipTarget(piece, {{5}, {50}}).size(), 3U);
}

TEST(Bounds, FollowNegativeSteps) {
  const Piece piece{0, {1, 2}, {9}, {{3, 0, 2, 0, -4}, {2, 1, 1, 0, -1}}, {}};
  EXPECT_EQ(LeafBounds(piece), (Box{{0}, {10}}));
  EXPECT_EQ(TargetBounds(piece), (Box{{1, 2}, {5, 2}}));
}

}  // namespace
}  // namespace crossdock::expr
