// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include "result_matchers.h"

namespace crossdock {
namespace {

using ::testing::HasSubstr;

TEST(DType, NamesGoBothWays) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto d = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(DTypeName(d)), d);
  }
  EXPECT_EQ(DTypeFromName("f32"), std::nullopt);
  EXPECT_EQ(DTypeFromName("F8_E4M3FN"), std::nullopt);
}

TEST(ByteSize, CountsSubByteElementsInWholeBytes) {
  EXPECT_EQ(ByteSize(DType::kF4, {2, 3}).value(), 3);
  EXPECT_THAT(ByteSize(DType::kF4, {3}), IsError(ErrorCode::kCorrupt, HasSubstr("12 bits")));
  EXPECT_EQ(ByteSize(DType::kF32, {}).value(), 4);
}

TEST(ByteSize, RefusesOverflowButNotAZeroAxis) {
  EXPECT_EQ(ByteSize(DType::kF32, {0, INT64_MAX, INT64_MAX}).value(), 0);
  EXPECT_THAT(ByteSize(DType::kF32, {INT64_MAX, 2}), IsError(ErrorCode::kCorrupt, HasSubstr("overflows")));
  EXPECT_THAT(ByteSize(DType::kF32, {-1}), IsError(ErrorCode::kCorrupt, HasSubstr("negative")));
}

}  // namespace
}  // namespace crossdock
