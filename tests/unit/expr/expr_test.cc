// SPDX-License-Identifier: Apache-2.0
#include "expr/expr.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "result_matchers.h"

namespace crossdock::expr {
namespace {

using ::testing::HasSubstr;

Expr L(Shape shape, DType dtype = DType::kF32) { return Leaf(0, dtype, shape); }

TEST(Builders, DeriveShapes) {
  EXPECT_EQ(Transpose(L({2, 3, 4}), {2, 0, 1}).value()->shape, Shape({4, 2, 3}));
  EXPECT_EQ(Concat({L({2, 3}), L({2, 5})}, 1).value()->shape, Shape({2, 8}));
  EXPECT_EQ(Stack({L({2, 3}), L({2, 3})}, 1).value()->shape, Shape({2, 2, 3}));
  EXPECT_EQ(Stack({L({}), L({})}, 0).value()->shape, Shape({2}));
  EXPECT_EQ(Index(L({2, 3}), 0, 1).value()->shape, Shape({3}));
  EXPECT_EQ(QuantizeValues(L({5, 4}), {2, 3}).value()->shape, Shape({5, 4}));
  EXPECT_EQ(QuantizeValues(L({5, 4}), {2, 3}).value()->dtype, DType::kF8E4M3);
  EXPECT_EQ(QuantizeScales(L({5, 4}, DType::kBF16), {2, 3}).value()->shape, Shape({3, 2}));
  EXPECT_EQ(QuantizeScales(L({5, 4}, DType::kBF16), {2, 3}).value()->dtype, DType::kF32);
  EXPECT_EQ(QuantizeScales(L({5, 4}), {1, 4}).value()->shape, Shape({5, 1}));
  EXPECT_EQ(QuantizeScales(L({5, 4}), {{5, 4}, true}).value()->shape, Shape({1}));
}

TEST(Builders, LeaveOutNodesThatDoNothing) {
  const Expr leaf = L({2});
  EXPECT_EQ(Cast(leaf, DType::kF32).value(), leaf);
  EXPECT_EQ(Scale(leaf, 1.0).value(), leaf);
  EXPECT_EQ(Offset(leaf, 0.0).value(), leaf);
}

struct Refusal {
  std::string name;
  Result<Expr> result;
  ErrorCode code;
  std::string text;
};

class Refuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refuses, WithCodeAndWords) {
  EXPECT_THAT(GetParam().result, IsError(GetParam().code, HasSubstr(GetParam().text)));
}

std::vector<Refusal> Refusals() {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const Expr q = QuantizeValues(L({4, 4}), {2, 2}).value();
  const Expr padded = Pad(L({4}), {0}, {6}).value();
  const Shape eight = Dims::Filled(kMaxRank, 1);
  return {
      {"ReshapeOfAnotherCount", Reshape(L({2, 3}), {5}), ErrorCode::kCorrupt, "cannot be reshaped"},
      {"ReshapeThatOverflows", Reshape(L({2}), {kHuge, kHuge}), ErrorCode::kCorrupt, ""},
      {"ReshapeToNegative", Reshape(L({2}), {-1, -2}), ErrorCode::kCorrupt, ""},
      {"TransposeTwiceTheSameAxis", Transpose(L({2, 3}), {0, 0}), ErrorCode::kUsage, "each axis once"},
      {"TransposeOfAnotherRank", Transpose(L({2, 3}), {0}), ErrorCode::kUsage, "each axis once"},
      {"ReverseOfNoAxis", Reverse(L({2}), 1), ErrorCode::kUsage, "an axis of [2]"},
      {"ConcatOfNothing", Concat({}, 0), ErrorCode::kUsage, "no inputs"},
      {"ConcatOfNoAxis", Concat({L({2})}, -1), ErrorCode::kUsage, "an axis of [2]"},
      {"ConcatOfShapes", Concat({L({2, 3}), L({2, 4})}, 0), ErrorCode::kCorrupt, "disagree in shape"},
      {"ConcatOfRanks", Concat({L({2, 3}), L({2})}, 0), ErrorCode::kCorrupt, "disagree in shape"},
      {"ConcatOfTypes", Concat({L({2}), L({2}, DType::kBF16)}, 0), ErrorCode::kUnsupported, "disagree in dtype"},
      {"ConcatThatOverflows", Concat({L({kHuge}), L({1})}, 0), ErrorCode::kCorrupt, "too large"},
      {"StackOfTooManyAxes", Stack({L(eight)}, 0), ErrorCode::kUsage, "stacked"},
      {"StackOfNoAxis", Stack({L({2})}, 2), ErrorCode::kUsage, "stacked"},
      {"SliceOutside", Slice(L({4}), {{2}, {3}}), ErrorCode::kCorrupt, "reaches outside"},
      {"SliceThatOverflows", Slice(L({4}), {{kHuge}, {kHuge}}), ErrorCode::kCorrupt, "reaches outside"},
      {"IndexOutside", Index(L({4}), 0, 4), ErrorCode::kCorrupt, "reaches outside"},
      {"PadTooSmall", Pad(L({4}), {0}, {3}), ErrorCode::kCorrupt, "does not fit"},
      {"PadThatOverflows", Pad(L({4, 4}), {0, 0}, {kHuge, kHuge}), ErrorCode::kCorrupt, ""},
      {"CastOfIntegers", Cast(L({4}, DType::kI64), DType::kF32), ErrorCode::kUnsupported, "floating types only"},
      {"CastToIntegers", Cast(L({4}), DType::kI64), ErrorCode::kUnsupported, "floating types only"},
      {"ScaleByZero", Scale(L({4}), 0.0), ErrorCode::kUsage, "finite and not 0"},
      {"ScaleByNan", Scale(L({4}), std::nan("")), ErrorCode::kUsage, "finite and not 0"},
      {"ScaleWhoseSquareVanishes", Scale(L({4}), 1e-200), ErrorCode::kUsage, "finite and not 0"},
      {"ScaleOfIntegers", Scale(L({4}, DType::kI32), 2.0), ErrorCode::kUnsupported, "floating types only"},
      {"OffsetByInfinity", Offset(L({4}), INFINITY), ErrorCode::kUsage, "finite"},
      {"OffsetOverPadding", Offset(padded, 1.0), ErrorCode::kUnsupported, "padding"},
      {"QuantizeOfOneAxis", QuantizeValues(L({4}), {2, 2}), ErrorCode::kUnsupported, "two axes"},
      {"QuantizeOfIntegers", QuantizeScales(L({4, 4}, DType::kI32), {2, 2}), ErrorCode::kUnsupported, "two axes"},
      {"QuantizeByEmptyBlocks", QuantizeValues(L({4, 4}), {0, 2}), ErrorCode::kUsage, "no extent"},
      {"ReshapeOfQuantized", Reshape(q, {16}), ErrorCode::kUnsupported, "quantized"},
      {"ConcatOfQuantized", Concat({q, q}, 0), ErrorCode::kUnsupported, "quantized"},
      {"CastOfQuantized", Cast(q, DType::kF32), ErrorCode::kUnsupported, "quantized"},
      {"QuantizeWholeByABlock", QuantizeScales(L({4, 4}), {{4, 2}, true}), ErrorCode::kUsage, "larger"},
      {"QuantizeTwice", QuantizeScales(q, {2, 2}), ErrorCode::kUnsupported, "quantized"},
  };
}

INSTANTIATE_TEST_SUITE_P(Builders, Refuses, ::testing::ValuesIn(Refusals()),
                         [](const auto& row) { return row.param.name; });

TEST(Builders, OffsetOverTrimmedPaddingIsFine) {
  const Expr trimmed = Slice(Pad(L({4}), {0}, {6}).value(), {{0}, {4}}).value();
  EXPECT_THAT(Offset(trimmed, 1.0), IsOk());
}

}  // namespace
}  // namespace crossdock::expr
