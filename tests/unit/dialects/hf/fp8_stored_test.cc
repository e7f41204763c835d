// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_stored.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expr/dequantize.h"
#include "result_matchers.h"

namespace crossdock::dialects::hf {
namespace {

expr::Expr Stored(const Shape& values, const Shape& scales, expr::BlockFormat block, DType type = DType::kF32) {
  return expr::Dequantize(expr::Leaf(0, DType::kF8E4M3, values), expr::Leaf(1, type, scales), block, DType::kBF16).value();
}

TEST(AsStored, GivesCodesAndScalesInTheirShapes) {
  const auto block = AsStored(Stored({200, 130}, {2, 2}, {128, 128}), {128, 128});
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(expr::Describe(block->values), "0");
  EXPECT_EQ(expr::Describe(block->scales), "1");
  EXPECT_FALSE(block->exponents);
  const auto row = AsStored(Stored({20, 13}, {20}, {1, 13}, DType::kBF16), {1, 13});
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->scales->shape, (Shape{20, 1}));
  EXPECT_EQ(row->scales->dtype, DType::kF32);
  const auto whole = AsStored(Stored({20, 13}, {}, {20, 13}, DType::kF8E8M0), {20, 13});
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->scales->shape, (Shape{1, 1}));
  EXPECT_TRUE(whole->exponents);
}

TEST(AsStored, LooksThroughCastsAndCutsAlongBlocks) {
  const expr::Expr experts = Stored({3, 256, 130}, {3, 2, 2}, {128, 128});
  const expr::Expr one = expr::Cast(*expr::Index(experts, 0, 2), DType::kF32).value();
  const auto stored = AsStored(one, {128, 128});
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(expr::Describe(stored->values), "reshape[256, 130](slice[2:3, 0:256, 0:130](0))");
  EXPECT_EQ(expr::Describe(stored->scales), "reshape[2, 2](slice[2:3, 0:2, 0:2](1))");
  const expr::Expr up = expr::Slice(one, Box{{128, 0}, {128, 130}}).value();
  const auto half = AsStored(up, {128, 128});
  ASSERT_TRUE(half.has_value());
  EXPECT_EQ(half->scales->shape, (Shape{1, 2}));
  const auto turned = AsStored(*expr::Transpose(one, {1, 0}), {128, 128});
  ASSERT_TRUE(turned.has_value());
  EXPECT_EQ(turned->scales->shape, (Shape{2, 2}));
}

TEST(AsStored, AnotherBlockACutBlockOrAnotherTypeIsNotThat) {
  const expr::Expr weight = Stored({200, 130}, {2, 2}, {128, 128});
  EXPECT_FALSE(AsStored(weight, {64, 128}));
  EXPECT_FALSE(AsStored(weight, {1, 130}));
  EXPECT_FALSE(AsStored(*expr::Slice(weight, Box{{64, 0}, {64, 130}}), {128, 128}));
  EXPECT_FALSE(AsStored(expr::Leaf(0, DType::kBF16, {200, 130}), {128, 128}));
  EXPECT_FALSE(AsStored(*expr::Scale(weight, 2.0), {128, 128}));
  const expr::Expr other = expr::Dequantize(expr::Leaf(0, DType::kF8E5M2, {4, 4}), expr::Leaf(1, DType::kF32, {1}), {4, 4}, DType::kBF16).value();
  EXPECT_FALSE(AsStored(other, {4, 4}));
  // A block as large as the weight is the same group by any name.
  EXPECT_TRUE(AsStored(Stored({40, 30}, {1, 1}, {40, 30}), {128, 128}));
}

}  // namespace
}  // namespace crossdock::dialects::hf
