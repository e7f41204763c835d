// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "expr/expr.h"

namespace crossdock::expr {
namespace {

TEST(Describe, NamesEachOperation) {
  const Expr leaf = Leaf(5, DType::kF32, {4, 6});
  EXPECT_EQ(Describe(Transpose(leaf, {1, 0}).value()), "transpose[1, 0](5)");
  EXPECT_EQ(Describe(Reverse(leaf, 1).value()), "reverse[1](5)");
  EXPECT_EQ(Describe(Pad(leaf, {0, 0}, {8, 6}).value()), "pad[8, 6](5)");
  EXPECT_EQ(Describe(Slice(leaf, {{1, 0}, {2, 6}}).value()), "slice[1:3, 0:6](5)");
  EXPECT_EQ(Describe(QuantizeValues(leaf, {2, 3}).value()), "quantize[2x3](5)");
  EXPECT_EQ(Describe(QuantizeScales(leaf, {2, 3}).value()), "quantize_scales[2x3](5)");
  EXPECT_EQ(Describe(QuantizeScales(leaf, {{2, 3}, false, ScaleFormat::kUe8m0}).value()), "quantize_scales[2x3, ue8m0](5)");
  EXPECT_EQ(Describe(QuantizeValues(leaf, {leaf->shape[0], leaf->shape[1], true, ScaleFormat::kFloat, Arithmetic::kRelax}).value()), "quantize[tensor, relax](5)");
  EXPECT_EQ(Describe(Shard(Concat({leaf, Reshape(leaf, {4, 6}).value()}, 0).value(), 0)),
            "shard[0](concat(5, reshape[4, 6](5); axis 0))");
}

TEST(Describe, ShortensAStackOfLayers) {
  std::vector<Expr> layers;
  for (int i = 0; i < 126; ++i) layers.push_back(Leaf(i, DType::kF32, {1, 2}));
  EXPECT_EQ(Describe(Concat(layers, 0).value()), "concat(0, 1, 2, 122 more, 125; axis 0)");
  layers.resize(4);
  EXPECT_EQ(Describe(Concat(layers, 0).value()), "concat(0, 1, 2, 3; axis 0)");
}

}  // namespace
}  // namespace crossdock::expr
