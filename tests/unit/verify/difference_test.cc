// SPDX-License-Identifier: Apache-2.0
#include "verify/difference.h"

#include <cmath>
#include <vector>

#include "result_matchers.h"

namespace crossdock::verify {
namespace {

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span<const T>(v));
}

TensorDifference Diff(const std::vector<float>& a, const std::vector<float>& b) {
  TensorDifference d;
  Accumulate(Bytes(a), DType::kF32, Bytes(b), DType::kF32, 0, &d);
  return d;
}

TEST(Accumulate, CountsByTheTolerancesOfTheContract) {
  // exact: 1e-6 + 1e-4 |b|; close: 1e-4 + 1e-3 |b|
  const TensorDifference d = Diff({1.0F, 1.00005F, 1.0005F, 1.01F}, {1.0F, 1.0F, 1.0F, 1.0F});
  EXPECT_EQ(d.elements, 4);
  EXPECT_EQ(d.differing_bits, 3);
  EXPECT_EQ(d.not_exact, 2);
  EXPECT_EQ(d.not_close, 1);
  EXPECT_EQ(d.first_index, 1);
  EXPECT_NEAR(d.max_abs, 0.01, 1e-6);
}

TEST(Accumulate, ToleratesNothingInBits) {
  EXPECT_EQ(Diff({0.0F}, {-0.0F}).differing_bits, 1);
  const float quiet = std::nanf("1");
  const float other = std::nanf("2");
  const TensorDifference d = Diff({quiet}, {other});
  EXPECT_EQ(d.differing_bits, 1);
  EXPECT_EQ(d.not_exact, 0);  // two NaNs
  EXPECT_EQ(d.nonfinite, 1);
}

TEST(Accumulate, NamesNonfiniteValuesEvenWhenEqual) {
  const TensorDifference d = Diff({INFINITY, 1.0F, NAN}, {INFINITY, 1.0F, NAN});
  EXPECT_EQ(d.nonfinite, 2);
  EXPECT_EQ(d.differing_bits, 0);
}

TEST(Accumulate, SeesAPermutationOfTinyMoments) {
  const TensorDifference d = Diff({1e-9F, 2e-9F}, {2e-9F, 1e-9F});
  EXPECT_EQ(d.not_exact, 0);  // the tolerance is blind to it ...
  EXPECT_EQ(d.differing_bits, 2);  // ... the bits are not
}

TEST(Accumulate, MeasuresUnitsInTheLastPlace) {
  const float one_up = std::nextafterf(1.0F, 2.0F);
  EXPECT_EQ(Diff({one_up}, {1.0F}).beyond_ulp, 0);
  EXPECT_EQ(Diff({std::nextafterf(one_up, 2.0F)}, {1.0F}).beyond_ulp, 1);
  const float tiny = std::nextafterf(0.0F, 1.0F);
  EXPECT_EQ(Diff({tiny}, {0.0F}).beyond_ulp, 0);
  EXPECT_EQ(Diff({tiny}, {-tiny}).beyond_ulp, 1);
}

TEST(Accumulate, WideningCountsAsEqualValues) {
  const std::vector<std::uint16_t> half = {0x3f80, 0xc000};  // 1, -2 in bf16
  const std::vector<float> single = {1.0F, -2.0F};
  TensorDifference d;
  Accumulate(Bytes(half), DType::kBF16, Bytes(single), DType::kF32, 0, &d);
  EXPECT_EQ(d.differing_bits, 0);
  EXPECT_EQ(d.elements, 2);
}

}  // namespace
}  // namespace crossdock::verify
