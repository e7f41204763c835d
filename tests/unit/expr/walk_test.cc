// SPDX-License-Identifier: Apache-2.0
// Walks through the operations of the family rules, each against its formula: element (i, j) of the target is element
// (i', j') of a hub tensor. Formulas are written here in index arithmetic, not with the builders.
#include <gtest/gtest.h>

#include "expr/expr.h"
#include "expr/pull_back.h"
#include "result_matchers.h"
#include "unit/expr/naive_eval.h"

namespace crossdock::expr {
namespace {

using ::testing::ElementsAre;

struct From {
  int leaf = -1;
  Dims index;
};

/// Pulls back `box` of `root` and compares each element with the formula.
void ExpectElements(const Expr& root, const Box& box, const std::function<From(const Dims&)>& formula) {
  const std::map<int, Shape> shapes = LeafShapes(root);
  std::vector<Cell> expected;
  ForEachIndex(box.sizes, [&](Dims index) {
    for (std::size_t a = 0; a < index.size(); ++a) index[a] += box.offsets[a];
    const From from = formula(index);
    expected.push_back(from.leaf < 0 ? Cell{} : Cell{from.leaf, RowMajor(shapes.at(from.leaf), from.index), {}, -1});
  });
  EXPECT_EQ(CellsOfPieces(root, box, PullBack(root, box)), expected) << Describe(root);
}

/// Marks keep Simplify from looking through a node; a round trip is judged without them.
Expr Unmarked(const Expr& root) {
  auto node = std::make_shared<Node>(*root);
  node->shard_axis.reset();
  for (Expr& in : node->inputs) in = Unmarked(in);
  return node;
}

void ExpectRoundTrip(const Expr& marked) {
  const Expr root = Unmarked(marked);
  for (const auto& [ordinal, shape] : LeafShapes(root)) {
    ASSERT_OK_AND_ASSIGN(const Expr inverse, Inverse(root, ordinal));
    ASSERT_OK_AND_ASSIGN(const Expr both, Substitute(inverse, [&](int) -> Result<Expr> { return root; }));
    const Box whole = Box::Whole(shape);
    EXPECT_EQ(CellsOfPieces(both, whole, PullBack(both, whole)), Evaluate(Leaf(ordinal, DType::kF32, shape)));
    EXPECT_EQ(Describe(Simplify(both)), std::to_string(ordinal));
  }
}

struct Attention {
  std::string name;
  std::int64_t groups, queries, head, hidden;  // KV groups, queries a group, rows a head; hidden 0 = bias
};

Shape Rows(std::int64_t rows, std::int64_t hidden) { return hidden == 0 ? Shape{rows} : Shape{rows, hidden}; }

/// qkv: [groups, queries + 2, head(, hidden)] flattened, cut by rows.
Expr Qkv(const Attention& a) {
  const auto grouped = [&](int leaf, std::int64_t heads) {
    Shape shape{a.groups, heads, a.head};
    if (a.hidden != 0) shape.push_back(a.hidden);
    return Reshape(Leaf(leaf, DType::kF32, Rows(a.groups * heads * a.head, a.hidden)), shape).value();
  };
  const Expr joined = Concat({grouped(0, a.queries), grouped(1, 1), grouped(2, 1)}, 1).value();
  return Shard(Reshape(joined, Rows(a.groups * (a.queries + 2) * a.head, a.hidden)).value(), 0);
}

From QkvFormula(const Attention& a, const Dims& index) {
  const std::int64_t i = index[0] / a.head / (a.queries + 2), j = index[0] / a.head % (a.queries + 2);
  const std::int64_t c = index[0] % a.head;
  From from{j < a.queries ? 0 : (j == a.queries ? 1 : 2), {}};
  from.index.push_back(j < a.queries ? (i * a.queries + j) * a.head + c : i * a.head + c);
  if (a.hidden != 0) from.index.push_back(index[1]);
  return from;
}

class QkvCase : public ::testing::TestWithParam<Attention> {};

TEST_P(QkvCase, PlacesEachRow) {
  const Attention& a = GetParam();
  const Expr root = Qkv(a);
  ExpectElements(root, Box::Whole(root->shape), [&](const Dims& i) { return QkvFormula(a, i); });
  ExpectRoundTrip(root);
}

TEST_P(QkvCase, CutsEqualRowsForEachRank) {
  const Attention& a = GetParam();
  const Expr root = Qkv(a);
  for (const int size : {1, 2, 4, 8}) {
    std::vector<Box> all;
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(root, size, rank));
      ASSERT_EQ(boxes.size(), 1U);
      EXPECT_EQ(boxes[0].sizes[0], root->shape[0] / size);
      ExpectElements(root, boxes[0], [&](const Dims& i) { return QkvFormula(a, i); });
      all.push_back(boxes[0]);
    }
    EXPECT_THAT(CheckCover(root->shape, all), IsOk());
  }
}

// GroupCut has fewer groups than the largest TP: the row cut falls inside a group, and inside a head.
INSTANTIATE_TEST_SUITE_P(Qkv, QkvCase,
                         ::testing::Values(Attention{"Gqa", 8, 3, 4, 5}, Attention{"Mqa", 1, 6, 4, 5},
                                           Attention{"Mha", 8, 1, 2, 3}, Attention{"Bias", 4, 2, 4, 0},
                                           Attention{"GroupCut", 2, 5, 4, 3}),
                         [](const auto& row) { return row.param.name; });

TEST(NamedOps, QkvIsAFewPiecesWhateverItsSizes) {
  const Expr root = Qkv({"", 8, 8, 128, 8192});
  EXPECT_EQ(PullBack(root, Box::Whole(root->shape)).size(), 3U);
  // From inside a head of group 5 to inside one of group 7: a part of a head, the rest of the group in q, k and v,
  // a whole group, and a part of a head again.
  EXPECT_EQ(PullBack(root, {{5 * 1280 + 100, 0}, {2 * 1280, 8192}}).size(), 1U + 3U + 3U + 1U);
}

TEST(NamedOps, GateUpCutsEachHalf) {
  const Expr root = Concat({Shard(Leaf(0, DType::kF32, {6, 4}), 0), Shard(Leaf(1, DType::kF32, {6, 4}), 0)}, 0).value();
  ExpectElements(root, Box::Whole({12, 4}), [](const Dims& i) { return From{i[0] < 6 ? 0 : 1, {i[0] % 6, i[1]}}; });
  ExpectRoundTrip(root);
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(root, 2, 1));
  EXPECT_THAT(boxes, ElementsAre(Box{{3, 0}, {3, 4}}, Box{{9, 0}, {3, 4}}));
}

TEST(NamedOps, VocabPadsWithZeroRowsAndTrims) {
  const Expr root = Shard(Pad(Leaf(0, DType::kF32, {10, 4}), {0, 0}, {16, 4}).value(), 0);
  const auto formula = [](const Dims& i) { return i[0] < 10 ? From{0, i} : From{}; };
  ExpectElements(root, Box::Whole({16, 4}), formula);
  ExpectElements(root, {{8, 1}, {8, 2}}, formula);
  ExpectElements(root, {{12, 0}, {4, 4}}, formula);
  ExpectRoundTrip(root);
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(root, 4, 3));
  EXPECT_THAT(boxes, ElementsAre(Box{{12, 0}, {4, 4}}));
}

TEST(NamedOps, Heads) {  // [n d, i] -> [i, n, d]: out[x, j, c] = W[j d + c, x]
  const Expr root = Reshape(Transpose(Leaf(0, DType::kF32, {12, 5}), {1, 0}).value(), {5, 3, 4}).value();
  const auto formula = [](const Dims& i) { return From{0, {i[1] * 4 + i[2], i[0]}}; };
  ExpectElements(root, Box::Whole({5, 3, 4}), formula);
  ExpectElements(root, {{1, 1, 1}, {3, 2, 2}}, formula);
  ExpectRoundTrip(root);
}

TEST(NamedOps, HeadsOut) {  // [h, n d] -> [n, d, h]
  const Expr root = Reshape(Transpose(Leaf(0, DType::kF32, {5, 12}), {1, 0}).value(), {3, 4, 5}).value();
  ExpectElements(root, Box::Whole({3, 4, 5}), [](const Dims& i) { return From{0, {i[2], i[0] * 4 + i[1]}}; });
  ExpectRoundTrip(root);
}

TEST(NamedOps, StackAtAxisOne) {
  std::vector<Expr> layers;
  for (int l = 0; l < 4; ++l) layers.push_back(Transpose(Leaf(l, DType::kF32, {3, 5}), {1, 0}).value());
  const Expr root = Stack(layers, 1).value();
  const auto formula = [](const Dims& i) { return From{static_cast<int>(i[1]), {i[2], i[0]}}; };
  ExpectElements(root, Box::Whole({5, 4, 3}), formula);
  ExpectElements(root, {{1, 1, 0}, {3, 2, 3}}, formula);
  ExpectRoundTrip(root);
}

TEST(NamedOps, RopePair) {  // in each head: out[2j] = x[j], out[2j + 1] = x[d/2 + j]
  const Expr halves = Reshape(Leaf(0, DType::kF32, {16, 3}), {2, 2, 4, 3}).value();  // head, half, j, hidden
  const Expr root = Reshape(Transpose(halves, {0, 2, 1, 3}).value(), {16, 3}).value();
  const auto formula = [](const Dims& i) {
    const std::int64_t head = i[0] / 8, c = i[0] % 8;
    return From{0, {head * 8 + (c % 2 == 0 ? c / 2 : 4 + c / 2), i[1]}};
  };
  ExpectElements(root, Box::Whole({16, 3}), formula);
  ExpectElements(root, {{3, 1}, {9, 2}}, formula);
  ExpectRoundTrip(root);
}

TEST(NamedOps, ConvFlip) {  // [C, 1, K] -> [K, C] with K reversed
  const Expr squeezed = Reshape(Leaf(0, DType::kF32, {5, 1, 4}), {5, 4}).value();
  const Expr root = Reverse(Transpose(squeezed, {1, 0}).value(), 0).value();
  ExpectElements(root, Box::Whole({4, 5}), [](const Dims& i) { return From{0, {i[1], 0, 3 - i[0]}}; });
  ExpectElements(root, {{1, 2}, {2, 2}}, [](const Dims& i) { return From{0, {i[1], 0, 3 - i[0]}}; });
  ExpectRoundTrip(root);
}

// Megatron to Megatron through the hub: once simplified, the stored tensor itself below the target's marks.
TEST(NamedOps, SameDialectComposesToTheTensorItself) {
  const Attention a{"", 4, 2, 8, 16};
  std::vector<Expr> layers;
  for (int l = 0; l < 3; ++l) {
    ASSERT_OK_AND_ASSIGN(Expr layer, Substitute(Qkv(a), [&](int i) -> Result<Expr> {
                           return Leaf(3 * l + i, DType::kF32,
                                       {a.groups * (i == 0 ? a.queries : 1) * a.head, a.hidden});
                         }));
    layers.push_back(std::move(layer));
  }
  const Expr stacked = Stack(layers, 0).value();
  ASSERT_OK_AND_ASSIGN(const Expr composed, Substitute(stacked, [&](int i) { return Inverse(stacked, i); }));
  EXPECT_EQ(PullBack(composed, Box::Whole(composed->shape)).size(), 9U);
  EXPECT_EQ(Describe(Simplify(Unmarked(composed))), "0");
  const Expr simple = Simplify(composed);
  const std::vector<Piece> pieces = PullBack(simple, Box::Whole(simple->shape));
  ASSERT_EQ(pieces.size(), 3U);
  for (const Piece& piece : pieces) EXPECT_EQ(piece.target_origin, piece.leaf_origin);
  ASSERT_OK_AND_ASSIGN(const std::vector<Box> boxes, ShardBoxes(simple, 2, 1));
  EXPECT_THAT(boxes,
              ElementsAre(Box{{0, 64, 0}, {1, 64, 16}}, Box{{1, 64, 0}, {1, 64, 16}}, Box{{2, 64, 0}, {1, 64, 16}}));
}

}  // namespace
}  // namespace crossdock::expr
