// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "expr/expr.h"
#include "unit/expr/naive_eval.h"
#include "unit/expr/random_tree.h"

namespace crossdock::expr {
namespace {

/// Compute steps with casts that a later cast undoes taken out: the only steps that Simplify may drop.
std::vector<std::string> WithoutCastsBack(const std::vector<std::string>& ops) {
  std::vector<std::string> out;
  for (const std::string& op : ops) {
    out.push_back(op);
    while (!out.empty() && out.back().starts_with("cast ")) {
      const std::string last = out.back();
      const std::string to = last.substr(last.rfind(' ') + 1);
      if (out.size() >= 2 && (out[out.size() - 2] == "cast BF16 F32" || out[out.size() - 2] == "cast F16 F32")) {
        const std::string from = out[out.size() - 2].substr(5, out[out.size() - 2].rfind(' ') - 5);
        out.resize(out.size() - 2);
        if (from != to) out.push_back("cast " + from + " " + to);
        continue;
      }
      break;
    }
  }
  return out;
}

void CheckSame(std::uint64_t seed, TreeOptions options) {
  const Expr root = RandomTree(seed, options).Grow();
  const Expr simple = Simplify(root);
  SCOPED_TRACE(Describe(root) + " becomes " + Describe(simple));
  ASSERT_EQ(simple->shape, root->shape);
  ASSERT_EQ(simple->dtype, root->dtype);
  std::vector<Cell> before = Evaluate(root), after = Evaluate(simple);
  for (std::vector<Cell>* cells : {&before, &after}) {
    for (Cell& c : *cells) c.ops = WithoutCastsBack(c.ops);
  }
  ASSERT_EQ(after, before);
  ASSERT_EQ(Describe(Simplify(simple)), Describe(simple)) << "not simple after one pass";
}

TEST(Simplify, KeepsEveryValueOfMovements) {
  ForSeeds(2000, [](std::uint64_t seed) { CheckSame(seed, {}); });
}

TEST(Simplify, KeepsEveryValueOfComputeAndMarks) {
  ForSeeds(1500, [](std::uint64_t seed) { CheckSame(seed, {.compute = true, .marks = true}); });
}

TEST(Simplify, KeepsTheBoxesOfRanks) {
  ForSeeds(1000, [](std::uint64_t seed) {
    const Expr root = RandomTree(seed, {.marks = true}).Grow();
    const Expr simple = Simplify(root);
    SCOPED_TRACE(Describe(root) + " becomes " + Describe(simple));
    const std::vector<Cell> before = EvaluateOwners(root, 2), after = EvaluateOwners(simple, 2);
    for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i].owner, before[i].owner) << i;
  });
}

struct Case {
  std::string name;
  Expr before;
  std::string after;
};

class SimplifyCase : public ::testing::TestWithParam<Case> {};

TEST_P(SimplifyCase, HasTheExpectedForm) { EXPECT_EQ(Describe(Simplify(GetParam().before)), GetParam().after); }

Expr L(int i, Shape shape) { return Leaf(i, DType::kF32, shape); }

std::vector<Case> Cases() {
  const Expr a = L(0, {4, 6}), b = L(1, {4, 6});
  const Expr both = Concat({a, b}, 0).value();
  return {
      {"ReshapeOfReshape", Reshape(Reshape(a, {24}).value(), {4, 6}).value(), "0"},
      {"TransposeBack", Transpose(Transpose(a, {1, 0}).value(), {1, 0}).value(), "0"},
      {"ReverseBack", Reverse(Reverse(a, 1).value(), 1).value(), "0"},
      {"SliceOfConcatHitsOneInput", Slice(both, {{4, 0}, {4, 6}}).value(), "1"},
      {"SliceOfConcatCutsTwoInputs", Slice(both, {{2, 0}, {4, 6}}).value(),
       "concat(slice[2:4, 0:6](0), slice[0:2, 0:6](1); axis 0)"},
      {"SlicePassesAxesOfOneToItsJoin", Slice(Reshape(both, {1, 8, 6}).value(), {{0, 4, 1}, {1, 4, 5}}).value(), "reshape[1, 4, 5](slice[0:4, 1:6](1))"},
      {"IndexOfIndexOfJoinsFindsTheOne", Index(Index(Stack({both, both}, 0).value(), 0, 1).value(), 0, 5).value(), "reshape[6](slice[1:2, 0:6](1))"},
      {"OtherReshapesStayInTheWay", Slice(Reshape(both, {4, 12}).value(), {{0, 0}, {1, 12}}).value(), "slice[0:1, 0:12](reshape[4, 12](concat(0, 1; axis 0)))"},
      {"SliceOfSlice", Slice(Slice(a, {{1, 0}, {3, 6}}).value(), {{1, 2}, {2, 3}}).value(), "slice[2:4, 2:5](0)"},
      {"TrimOfPad", Slice(Pad(a, {0, 0}, {8, 6}).value(), {{0, 0}, {4, 6}}).value(), "0"},
      {"IndexOfStack", Index(Stack({a, b}, 1).value(), 1, 1).value(), "1"},
      {"AdjacentSlicesJoin",
       Concat(
           {Slice(a, {{0, 0}, {1, 6}}).value(), Slice(a, {{1, 0}, {2, 6}}).value(), Slice(a, {{3, 0}, {1, 6}}).value()},
           0)
           .value(),
       "0"},
      {"ConcatOfConcat", Concat({both, L(2, {1, 6})}, 0).value(), "concat(0, 1, 2; axis 0)"},
      {"CastBack", Cast(Cast(Leaf(0, DType::kBF16, {2}), DType::kF32).value(), DType::kBF16).value(), "0"},
      {"NarrowingCastStays", Cast(Cast(a, DType::kBF16).value(), DType::kF32).value(), "cast[F32](cast[BF16](0))"},
      {"MarkedNodeStays", Slice(Shard(both, 0), {{0, 0}, {4, 6}}).value(),
       "slice[0:4, 0:6](shard[0](concat(0, 1; axis 0)))"},
      {"MarkMovesToTheResult", Shard(Reshape(Reshape(a, {24}).value(), {4, 6}).value(), 1), "shard[1](0)"},
  };
}

INSTANTIATE_TEST_SUITE_P(Forms, SimplifyCase, ::testing::ValuesIn(Cases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace crossdock::expr
