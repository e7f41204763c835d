// SPDX-License-Identifier: Apache-2.0
#include "kernels/cast.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "nearest.h"

namespace crossdock::kernels {
namespace {

using U16 = std::uint16_t;

template <typename To, typename From>
std::vector<To> CastAll(const std::vector<From>& in, DType from, DType to) {
  std::vector<To> out(in.size());
  Cast(reinterpret_cast<const std::byte*>(in.data()), from, reinterpret_cast<std::byte*>(out.data()), to,
       static_cast<std::int64_t>(in.size()));
  return out;
}

std::vector<U16> AllPatterns() {
  std::vector<U16> out(65536);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<U16>(i);
  return out;
}

/// A 16-bit float by its definition: sign, exponent, mantissa. Finite codes only.
double ByDefinition(U16 bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7FFF) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

struct Format {
  DType dtype;
  int mantissa_bits;
  U16 infinity;
};
constexpr Format kBf16 = {DType::kBF16, 7, 0x7F80};
constexpr Format kF16 = {DType::kF16, 10, 0x7C00};

class SixteenBits : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Both, SixteenBits, testing::Values(kBf16, kF16),
                         [](const auto& row) { return std::string(DTypeName(row.param.dtype)); });

TEST_P(SixteenBits, WidenAllPatternsExactly) {
  const Format format = GetParam();
  const auto floats = CastAll<float>(AllPatterns(), format.dtype, DType::kF32);
  const auto doubles = CastAll<double>(AllPatterns(), format.dtype, DType::kF64);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<U16>(i);
    const U16 magnitude = bits & 0x7FFF;
    if (magnitude > format.infinity) {
      ASSERT_TRUE(std::isnan(floats[i]) && std::isnan(doubles[i])) << i;
    } else {
      const double want = magnitude == format.infinity
                              ? std::copysign(std::numeric_limits<double>::infinity(), (bits & 0x8000) != 0 ? -1 : 1)
                              : ByDefinition(bits, format.mantissa_bits);
      ASSERT_EQ(static_cast<double>(floats[i]), want) << i;
      ASSERT_EQ(doubles[i], want) << i;
    }
    ASSERT_EQ(std::signbit(floats[i]), (bits & 0x8000) != 0) << i;
  }
}

TEST_P(SixteenBits, ComeBackFromF32BitForBit) {
  const Format format = GetParam();
  const U16 quiet = static_cast<U16>(1U << (format.mantissa_bits - 1));
  for (const DType wide : {DType::kF32, DType::kF64}) {
    const auto back = wide == DType::kF32
                          ? CastAll<U16>(CastAll<float>(AllPatterns(), format.dtype, wide), wide, format.dtype)
                          : CastAll<U16>(CastAll<double>(AllPatterns(), format.dtype, wide), wide, format.dtype);
    for (std::size_t i = 0; i < 65536; ++i) {
      const bool nan = (i & 0x7FFFU) > format.infinity;
      ASSERT_EQ(back[i], nan ? static_cast<U16>(i | quiet) : static_cast<U16>(i)) << i;  // NaN payload kept
    }
  }
}

TEST_P(SixteenBits, RoundToTheNearestWithTiesToEven) {
  const Format format = GetParam();
  const auto value = [&](std::uint32_t code) { return ByDefinition(static_cast<U16>(code), format.mantissa_bits); };
  const NearestBySearch nearest(value, format.infinity - 1U, format.infinity);
  std::vector<float> in;
  for (std::uint32_t i = 0; i < format.infinity; ++i) {  // each code, the tie above it, and both sides of the tie
    const double here = value(i);
    const double next = value(std::min<std::uint32_t>(i + 1, format.infinity - 1U));
    const auto tie = static_cast<float>((here + next) / 2);
    in.insert(in.end(), {static_cast<float>(here), tie, std::nextafter(tie, 0.0F), -std::nextafter(tie, 1e38F)});
  }
  std::mt19937 rng(99);
  for (int i = 0; i < 200000; ++i) {  // any pattern: denormals, huge values, both signs
    const auto f = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
    if (!std::isnan(f)) in.push_back(f);
  }
  const auto got = CastAll<U16>(in, DType::kF32, format.dtype);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint32_t sign = std::signbit(in[i]) ? 0x8000U : 0U;
    ASSERT_EQ(got[i], sign | nearest(std::fabs(static_cast<double>(in[i])))) << std::hexfloat << in[i];
  }
}

/// Values that torch 2 gives, one by one: torch.tensor(x, dtype=torch.float64).to(...). The F64 ones round twice.
TEST(Cast, GivesTorchsBitsOnTheHardValues) {
  struct Row {
    double in;
    U16 bf16, f16;
  };
  const std::vector<Row> rows = {
      {65519.0, 0x4780, 0x7BFF},
      {65520.0, 0x4780, 0x7C00},
      {-65520.0, 0xC780, 0xFC00},
      {0x1p-24, 0x3380, 0x0001},
      {0x1p-25, 0x3300, 0x0000},
      {0x1.8p-25, 0x3340, 0x0001},
      {0x1.ffcp-15, 0x3880, 0x0400},
      {-0.0, 0x8000, 0x8000},
      {0x1p-133, 0x0001, 0x0000},
      {0x1p-134, 0x0000, 0x0000},
      {3.4e38, 0x7F80, 0x7C00},
      {1.0 + 0x1p-8 + 0x1p-40, 0x3F80, 0x3C04},  // F32 loses the last bit, and the tie then goes to even
      {1.0 + 0x1p-11 + 0x1p-40, 0x3F80, 0x3C00},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(CastAll<U16>(std::vector<double>{row.in}, DType::kF64, DType::kBF16)[0], row.bf16) << row.in;
    EXPECT_EQ(CastAll<U16>(std::vector<double>{row.in}, DType::kF64, DType::kF16)[0], row.f16) << row.in;
  }
}

TEST(Cast, KeepsSignAndUpperPayloadOfNan) {
  const std::vector<float> in = {std::bit_cast<float>(0x7FC12345U), std::bit_cast<float>(0xFFA00001U),
                                 std::bit_cast<float>(0x7F800001U)};
  EXPECT_EQ(CastAll<U16>(in, DType::kF32, DType::kBF16), (std::vector<U16>{0x7FC1, 0xFFE0, 0x7FC0}));
  EXPECT_EQ(CastAll<U16>(in, DType::kF32, DType::kF16), (std::vector<U16>{0x7E09, 0xFF00, 0x7E00}));
}

TEST(Cast, AgreesWithTheElementwiseReferenceForAllPairs) {
  const std::vector<DType> types = {DType::kF64, DType::kF32,    DType::kBF16,
                                    DType::kF16, DType::kF8E4M3, DType::kF8E5M2};
  std::mt19937_64 rng(5);
  constexpr std::int64_t kCount = 2500;  // more than one inner block, with a rest
  for (const DType from : types) {
    std::vector<std::byte> in(static_cast<std::size_t>(kCount * ElementSize(from)));
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double v = std::ldexp(static_cast<double>(rng() % 2000) - 1000.0, static_cast<int>(rng() % 40) - 25);
      StoreFromDouble(v, in.data() + i * ElementSize(from), from);
    }
    for (const DType to : types) {
      ASSERT_TRUE(CanCast(from, to));
      std::vector<std::byte> got(static_cast<std::size_t>(kCount * ElementSize(to)));
      std::vector<std::byte> want = got;
      Cast(in.data(), from, got.data(), to, kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        StoreFromDouble(LoadAsDouble(in.data() + i * ElementSize(from), from), want.data() + i * ElementSize(to), to);
      }
      EXPECT_EQ(got, want) << DTypeName(from) << " to " << DTypeName(to);
    }
  }
}

TEST(Cast, RefusesIntegers) {
  EXPECT_FALSE(CanCast(DType::kI32, DType::kF32));
  EXPECT_FALSE(CanCast(DType::kF32, DType::kU8));
  EXPECT_FALSE(CanCast(DType::kF4, DType::kF32));
}

}  // namespace
}  // namespace crossdock::kernels
