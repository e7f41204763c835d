// SPDX-License-Identifier: Apache-2.0
#include "kernels/small_float.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "nearest.h"

namespace crossdock::kernels {
namespace {

struct SmallFormat {
  DType dtype;
  std::uint8_t largest;  ///< code of the largest finite value
  double largest_value;  ///< from the specifications
  double smallest_value;
  std::uint8_t over;  ///< what a positive overflow becomes
};

class SmallFloats : public testing::TestWithParam<SmallFormat> {};
INSTANTIATE_TEST_SUITE_P(All, SmallFloats,
                         testing::Values(SmallFormat{DType::kF8E4M3, 0x7E, 448.0, 0x1p-9, 0x7E},
                                         SmallFormat{DType::kF8E5M2, 0x7B, 57344.0, 0x1p-16, 0x7C},
                                         SmallFormat{DType::kF8E4M3FNUZ, 0x7F, 240.0, 0x1p-10, 0x80},
                                         SmallFormat{DType::kF8E5M2FNUZ, 0x7F, 57344.0, 0x1p-17, 0x80}),
                         [](const auto& row) { return std::string(DTypeName(row.param.dtype)); });

TEST_P(SmallFloats, HaveTheRangeOfTheirSpecification) {
  const SmallFormat f = GetParam();
  EXPECT_EQ(static_cast<double>(DecodeSmallFloat(f.largest, f.dtype)), f.largest_value);
  EXPECT_EQ(static_cast<double>(DecodeSmallFloat(1, f.dtype)), f.smallest_value);
}

TEST_P(SmallFloats, ComeBackOnAll256Patterns) {
  const SmallFormat f = GetParam();
  for (unsigned i = 0; i < 256; ++i) {
    const float v = DecodeSmallFloat(static_cast<std::uint8_t>(i), f.dtype);
    const std::uint8_t back = EncodeSmallFloat(v, f.dtype);
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(DecodeSmallFloat(back, f.dtype))) << i;
    } else {
      EXPECT_EQ(back, i);
    }
  }
}

TEST_P(SmallFloats, RoundToTheNearestWithTiesToEven) {
  const SmallFormat f = GetParam();
  const NearestBySearch nearest(
      [&](std::uint32_t c) { return static_cast<double>(DecodeSmallFloat(static_cast<std::uint8_t>(c), f.dtype)); },
      f.largest, f.over);
  std::mt19937 rng(3);
  for (int i = 0; i < 60000; ++i) {
    const auto v = std::ldexp(static_cast<float>(rng() % 4096), static_cast<int>(rng() % 40) - 28);
    ASSERT_EQ(EncodeSmallFloat(v, f.dtype), nearest(static_cast<double>(v))) << v;
  }
}

TEST(SmallFloat, OverflowsAsTorchDoes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(EncodeSmallFloat(kInf, DType::kF8E4M3), 126);
  EXPECT_EQ(EncodeSmallFloat(-1e30F, DType::kF8E4M3), 254);
  EXPECT_EQ(EncodeSmallFloat(-kInf, DType::kF8E5M2), 252);
  EXPECT_EQ(EncodeSmallFloat(kInf, DType::kF8E4M3FNUZ), 128);
  EXPECT_EQ(EncodeSmallFloat(std::numeric_limits<float>::quiet_NaN(), DType::kF8E4M3), 127);
}

TEST(SmallFloat, ScaleFormatHoldsPowersOfTwoOnly) {
  EXPECT_EQ(DecodeSmallFloat(127, DType::kF8E8M0), 1.0F);
  EXPECT_EQ(DecodeSmallFloat(0, DType::kF8E8M0), 0x1p-127F);
  EXPECT_TRUE(std::isnan(DecodeSmallFloat(0xFF, DType::kF8E8M0)));
  EXPECT_EQ(EncodeSmallFloat(4.0F, DType::kF8E8M0), 129);
  EXPECT_EQ(EncodeSmallFloat(1.4F, DType::kF8E8M0), 127);
  EXPECT_EQ(EncodeSmallFloat(1.6F, DType::kF8E8M0), 128);
  EXPECT_EQ(EncodeSmallFloat(-1.0F, DType::kF8E8M0), 0xFF);
}

}  // namespace
}  // namespace crossdock::kernels
