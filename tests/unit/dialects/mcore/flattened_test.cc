// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/flattened.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

/// Each element of the tensor and the stored place it must come from, counted out by hand: blocks row-major in the grid.
void ExpectBlocks(const Shape& stored, const Shape& logical) {
  ASSERT_OK_AND_ASSIGN(const expr::Expr whole, FromFlattenedBlocks(expr::Leaf(0, DType::kF32, stored), logical));
  EXPECT_EQ(whole->shape, logical);
  const auto elements = Elements(whole);
  ASSERT_EQ(static_cast<std::int64_t>(elements.size()), CheckedCount(logical));
  for (const auto& [at, from] : elements) {
    Dims wanted;
    std::int64_t inside = 0;
    for (std::size_t i = 0; i < logical.size(); ++i) {
      const std::int64_t block = logical[i] / stored[i];
      wanted.push_back(at[i] / block);
      inside = inside * block + at[i] % block;
    }
    wanted.push_back(inside);
    EXPECT_EQ(from.second, wanted) << ToString(at);
  }
}

TEST(FlattenedTest, EveryElementComesFromItsBlock) {
  ExpectBlocks({3, 4, 1, 60}, {3, 24, 10});     // gate and up of two ranks, a block a layer
  ExpectBlocks({3, 1, 2, 120}, {3, 24, 10});    // columns
  ExpectBlocks({2, 2, 2, 2}, {2, 4, 2});
  ExpectBlocks({4, 6}, {24});                   // 1-D
  ExpectBlocks({1, 24}, {24});
  ExpectBlocks({2, 2, 2, 2, 24}, {2, 4, 6, 8}); // expert tensors: four axes become seven
}

TEST(FlattenedTest, WhatIsNoGridIsRefused) {
  const auto made = [](const Shape& stored, const Shape& logical) { return FromFlattenedBlocks(expr::Leaf(0, DType::kF32, stored), logical); };
  EXPECT_THAT(made({5, 12}, {24}), IsError(ErrorCode::kCorrupt, HasSubstr("no grid of blocks")));    // 5 does not divide
  EXPECT_THAT(made({4, 7}, {24}), IsError(ErrorCode::kCorrupt, HasSubstr("[4, 7]")));                // blocks of another size
  EXPECT_THAT(made({0, 6}, {24}), IsError(ErrorCode::kCorrupt, HasSubstr("[0, 6]")));
  EXPECT_THAT(made({24}, {24}), IsError(ErrorCode::kCorrupt, HasSubstr("[24]")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
