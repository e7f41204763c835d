// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "expr/expr.h"
#include "result_matchers.h"
#include "unit/expr/naive_eval.h"
#include "unit/expr/random_tree.h"

namespace crossdock::expr {
namespace {

using ::testing::HasSubstr;

std::vector<Cell> Identity(int leaf, const Shape& shape) { return Evaluate(Leaf(leaf, DType::kF32, shape)); }

TEST(Inverse, AfterForwardIsTheIdentityOnEachLeaf) {
  ForSeeds(1000, [](std::uint64_t seed) {
    RandomTree tree(seed, {.slices = false});
    const Expr root = tree.Grow();
    SCOPED_TRACE(Describe(root));
    for (const auto& [ordinal, shape] : LeafShapes(root)) {
      ASSERT_OK_AND_ASSIGN(const Expr inverse, Inverse(root, ordinal));
      ASSERT_EQ(inverse->shape, shape);
      ASSERT_OK_AND_ASSIGN(const Expr both, Substitute(inverse, [&](int) -> Result<Expr> { return root; }));
      const Box whole = Box::Whole(shape);
      ASSERT_EQ(CellsOfPieces(both, whole, PullBack(both, whole)), Identity(ordinal, shape));
    }
  });
}

// Source dialect to hub to target dialect: the source's rule inverted, put under the target's.
TEST(Inverse, ComposesToPlainCopies) {
  ForSeeds(500, [](std::uint64_t seed) {
    RandomTree tree(seed, {.slices = false});
    const Expr source = tree.Grow();
    std::vector<Expr> hub;
    for (const auto& [ordinal, shape] : LeafShapes(source)) hub.push_back(Leaf(ordinal, DType::kF32, shape));
    const Expr target = tree.GrowOver(hub);
    SCOPED_TRACE(Describe(source) + " to " + Describe(target));
    ASSERT_OK_AND_ASSIGN(Expr composed, Substitute(target, [&](int i) { return Inverse(source, i); }));
    std::map<std::pair<int, std::int64_t>, std::int64_t> place;  // of a hub element in the source tensor
    const std::vector<Cell> stored = Evaluate(source);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (stored[i].leaf >= 0) place[{stored[i].leaf, stored[i].index}] = static_cast<std::int64_t>(i);
    }
    std::vector<Cell> expected;
    for (const Cell& c : Evaluate(target)) expected.push_back({0, place.at({c.leaf, c.index}), {}, -1});
    const Box whole = Box::Whole(target->shape);
    for (const Expr& e : {composed, Simplify(composed)}) {
      ASSERT_EQ(CellsOfPieces(e, whole, PullBack(e, whole)), expected);
    }
  });
}

TEST(Inverse, UndoesComputeSteps) {
  const Expr leaf = Leaf(3, DType::kBF16, {2, 2});
  const Expr root = Offset(Scale(Cast(leaf, DType::kF32).value(), 4.0).value(), 1.0).value();
  ASSERT_OK_AND_ASSIGN(const Expr inverse, Inverse(root, 3));
  EXPECT_EQ(inverse->dtype, DType::kBF16);
  EXPECT_EQ(Describe(inverse), "cast[BF16](scale[0.25](offset[-1](0)))");
}

TEST(Inverse, IsRefusedWhereThereIsNone) {
  const Expr leaf = Leaf(0, DType::kF32, {4, 4});
  EXPECT_THAT(Inverse(QuantizeValues(leaf, {2, 2}).value(), 0),
              IsError(ErrorCode::kUnsupported, HasSubstr("quantization")));
  EXPECT_THAT(Inverse(Slice(leaf, {{0, 0}, {2, 4}}).value(), 0),
              IsError(ErrorCode::kUnsupported, HasSubstr("drops elements")));
  EXPECT_THAT(Inverse(Concat({leaf, leaf}, 0).value(), 0), IsError(ErrorCode::kUnsupported, HasSubstr("once")));
  EXPECT_THAT(Inverse(leaf, 1), IsError(ErrorCode::kUnsupported, HasSubstr("one use of input 1")));
}

TEST(Substitute, FollowsTheDTypeOfTheNewLeaves) {
  const Expr root = Shard(Concat({Leaf(0, DType::kF32, {2}), Leaf(1, DType::kF32, {3})}, 0).value(), 0);
  ASSERT_OK_AND_ASSIGN(const Expr made,
                       Substitute(root, [](int i) -> Result<Expr> { return Leaf(i + 10, DType::kBF16, {i + 2}); }));
  EXPECT_EQ(made->dtype, DType::kBF16);
  EXPECT_EQ(made->shard_axis, 0);
  EXPECT_EQ(LeafOrdinals(made), (std::vector<int>{10, 11}));
}

TEST(Substitute, KeepsTheMarkOfALeaf) {
  const Expr root = Shard(Leaf(0, DType::kF32, {4}), 0);
  ASSERT_OK_AND_ASSIGN(const Expr made,
                       Substitute(root, [](int) { return Reshape(Leaf(7, DType::kF32, {2, 2}), {4}); }));
  EXPECT_EQ(Describe(made), "shard[0](reshape[4](7))");
}

TEST(Substitute, ReportsWhatDoesNotFit) {
  const Expr root = Concat({Leaf(0, DType::kF32, {2}), Leaf(1, DType::kF32, {2})}, 0).value();
  EXPECT_THAT(Substitute(root, [](int i) -> Result<Expr> { return Leaf(i, DType::kF32, {2 + i}); }),
              IsError(ErrorCode::kCorrupt, HasSubstr("shape that the rule expects")));
  EXPECT_THAT(Substitute(root, [](int i) -> Result<Expr> { return Leaf(i, i == 0 ? DType::kF32 : DType::kBF16, {2}); }),
              IsError(ErrorCode::kUnsupported, HasSubstr("dtype")));
  EXPECT_THAT(Substitute(root, [](int) -> Result<Expr> { return MakeError(ErrorCode::kIncomplete, "not there"); }),
              IsError(ErrorCode::kIncomplete, HasSubstr("not there")));
}

TEST(ForSlot, ChangesScaleAndOffset) {
  const Expr root = Cast(Offset(Scale(Leaf(0, DType::kF32, {2}), 4.0).value(), 1.0).value(), DType::kBF16).value();
  const auto described = [&](Slot slot) { return Describe(ForSlot(root, slot).value()); };
  EXPECT_EQ(described(Slot::kParam), "cast[BF16](offset[1](scale[4](0)))");
  EXPECT_EQ(described(Slot::kMaster), "offset[1](scale[4](0))");
  EXPECT_EQ(described(Slot::kAdamMu), "scale[0.25](0)");
  EXPECT_EQ(described(Slot::kAdamNu), "scale[0.0625](0)");
  EXPECT_EQ(described(Slot::kMuonMu), "scale[0.25](0)");
}

TEST(ForSlot, LeavesMovementsAndMarksAlone) {
  ForSeeds(200, [](std::uint64_t seed) {
    const Expr root = RandomTree(seed, {.marks = true}).Grow();
    for (const Slot slot : kAllSlots) {
      ASSERT_OK_AND_ASSIGN(const Expr made, ForSlot(root, slot));
      ASSERT_EQ(Describe(made), Describe(root));
    }
  });
}

TEST(ForSlot, RefusesToQuantizeMoments) {
  const Expr root = QuantizeScales(Leaf(0, DType::kF32, {4, 4}), {2, 2}).value();
  EXPECT_THAT(ForSlot(root, Slot::kAdamMu), IsError(ErrorCode::kUnsupported, HasSubstr("adam_mu")));
  EXPECT_THAT(ForSlot(root, Slot::kParam), IsOk());
}

TEST(IsInexact, NamesWhatMayNotComeBack) {
  const Expr half = Leaf(0, DType::kBF16, {4, 4});
  const Expr wide = Leaf(0, DType::kF32, {4, 4});
  EXPECT_FALSE(IsInexact(Cast(half, DType::kF32).value()));
  EXPECT_FALSE(IsInexact(Reverse(Transpose(half, {1, 0}).value(), 0).value()));
  EXPECT_TRUE(IsInexact(Transpose(Cast(wide, DType::kBF16).value(), {1, 0}).value()));
  EXPECT_TRUE(IsInexact(Cast(half, DType::kF16).value()));
  EXPECT_TRUE(IsInexact(Scale(wide, 2.0).value()));
  EXPECT_TRUE(IsInexact(Offset(wide, 2.0).value()));
  EXPECT_TRUE(IsInexact(QuantizeValues(wide, {2, 2}).value()));
}

TEST(RoundsValues, NotASumWithSixteenBitsOnOneSide) {
  const auto offset = [](Expr in, double by) { return *Offset(std::move(in), by); };
  const Expr narrow = Leaf(0, DType::kBF16, {5});
  const Expr wide = Leaf(0, DType::kF32, {5});
  EXPECT_FALSE(RoundsValues(offset(*Cast(narrow, DType::kF32), -1)));                           // widened, then one less
  EXPECT_FALSE(RoundsValues(*Cast(offset(wide, 1), DType::kBF16)));                             // and back
  EXPECT_FALSE(RoundsValues(offset(*Cast(*Cast(offset(wide, 1), DType::kBF16), DType::kF32), -1)));
  EXPECT_FALSE(RoundsValues(wide));
  EXPECT_TRUE(RoundsValues(offset(wide, 1)));
  EXPECT_TRUE(RoundsValues(offset(narrow, 1)));                                                 // the sum itself has 16 bits
  EXPECT_TRUE(RoundsValues(*Cast(offset(offset(wide, 1), 2), DType::kBF16)));
  EXPECT_TRUE(RoundsValues(*Scale(*Cast(narrow, DType::kF32), 3)));
  EXPECT_TRUE(RoundsValues(*Stack({wide, offset(wide, 1)}, 0)));
}

}  // namespace
}  // namespace crossdock::expr
