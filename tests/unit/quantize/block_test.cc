// SPDX-License-Identifier: Apache-2.0
#include "quantize/block.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace crossdock::quantize {
namespace {

/// The value of an E4M3FN pattern, from the definition: sign, 4 bits of exponent (bias 7), 3 of mantissa.
double DecodeE4M3(std::uint8_t bits) {
  const int exponent = (bits >> 3U) & 15U, mantissa = bits & 7U;
  if (exponent == 15 && mantissa == 7) return std::nan("");
  const double value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80U) != 0 ? -value : value;
}

/// The nearest pattern by trying all; of two equally near ones the one with an even mantissa.
std::uint8_t NearestE4M3(double v) {
  std::uint8_t best = 0;
  for (int bits = 0; bits < 0x7F; ++bits) {
    const auto b = static_cast<std::uint8_t>(bits);
    const double now = std::fabs(DecodeE4M3(b) - std::fabs(v)), before = std::fabs(DecodeE4M3(best) - std::fabs(v));
    if (now < before || (now == before && bits % 2 == 0)) best = b;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(v) ? 0x80U : 0U));
}

struct Quantized {
  std::vector<std::uint8_t> q;
  std::vector<float> s;
};

/// Elements as bytes of a type; the types hold all values that the tests give them as BF16 and F16.
std::vector<std::byte> Encode(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> out(values.size() * static_cast<std::size_t>(ElementSize(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&out[i * 4], &values[i], 4);
    } else if (dtype == DType::kBF16) {
      const auto top = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16U);
      std::memcpy(&out[i * 2], &top, 2);
    } else {  // F16 of a normal value: move the exponent's bias, drop mantissa bits
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      const auto half =
          static_cast<std::uint16_t>(((bits >> 16U) & 0x8000U) | (((bits & 0x7FFFFFFFU) - 0x38000000U) >> 13U));
      std::memcpy(&out[i * 2], &half, 2);
    }
  }
  return out;
}

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

Quantized RunBlocks(const std::vector<float>& w, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t br,
                    std::int64_t bc) {
  const std::vector<std::byte> bytes = Encode(w, dtype);
  const std::int64_t blocks = ((rows + br - 1) / br) * ((cols + bc - 1) / bc);
  Quantized out{std::vector<std::uint8_t>(w.size(), 0x55), std::vector<float>(Size(blocks), -1.0F)};
  QuantizeBlocks(bytes.data(), dtype, rows, cols, {br, bc}, reinterpret_cast<std::byte*>(out.q.data()), out.s.data());
  return out;
}

/// Element by element, each looking over its whole block. The division is done in F32, as the format demands.
Quantized Naive(const std::vector<float>& w, std::int64_t rows, std::int64_t cols, std::int64_t br, std::int64_t bc) {
  Quantized out{std::vector<std::uint8_t>(w.size()), {}};
  const std::int64_t across = (cols + bc - 1) / bc;
  out.s.resize(Size(((rows + br - 1) / br) * across));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      double amax = 0;
      for (std::int64_t y = 0; y < rows; ++y) {
        for (std::int64_t x = 0; x < cols; ++x) {
          if (y / br == r / br && x / bc == c / bc) amax = std::fmax(amax, std::fabs(w[Size(y * cols + x)]));
        }
      }
      // One rounding: 448 and amax are exact in double, and F32 is half as wide.
      const auto s = static_cast<float>(std::fmax(amax, static_cast<double>(1e-12F)) / 448.0);
      out.s[Size(r / br * across + c / bc)] = s;
      out.q[Size(r * cols + c)] = NearestE4M3(static_cast<double>(w[Size(r * cols + c)] / s));
    }
  }
  return out;
}

std::vector<float> RandomValues(std::size_t n, std::uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::vector<float> out(n);
  for (float& v : out) {
    // Bits of BF16 precision, exponents within F16's normal range: every dtype of the test holds them exactly.
    const float unit = static_cast<float>(static_cast<int>(random() % 511U) - 255) / 256.0F;
    v = unit == 0 ? 0.5F : std::ldexp(unit, static_cast<int>(static_cast<float>(random() % 5U) * spread));
  }
  return out;
}

struct Shape2 {
  std::int64_t rows, cols, block_rows, block_cols;
};

class QuantizeBlocksCase : public ::testing::TestWithParam<Shape2> {};

TEST_P(QuantizeBlocksCase, AgreesWithTheNaiveComputation) {
  const Shape2 c = GetParam();
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<float> w = RandomValues(Size(c.rows * c.cols), seed, static_cast<float>(seed % 3));
    const Quantized expected = Naive(w, c.rows, c.cols, c.block_rows, c.block_cols);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Quantized found = RunBlocks(w, dtype, c.rows, c.cols, c.block_rows, c.block_cols);
      EXPECT_EQ(found.q, expected.q) << DTypeName(dtype);
      EXPECT_EQ(found.s, expected.s) << DTypeName(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, QuantizeBlocksCase,
                         ::testing::Values(Shape2{8, 8, 4, 4}, Shape2{9, 11, 4, 4}, Shape2{1, 7, 128, 128},
                                           Shape2{5, 300, 2, 290}, Shape2{6, 4, 1, 4}, Shape2{3, 5, 1, 1}));

TEST(QuantizeBlocks, GivesKnownBytes) {
  // amax 448: s is 1, so the bytes are the values. Ties go to the even mantissa; 2^-10 is half of the least and goes to
  // 0.
  const std::vector<float> w = {448.0F,       -448.0F,       1.0F,          17.0F, 19.0F, 0.015625F,
                                0.001953125F, 0.0009765625F, 0.0029296875F, 0.0F,  -0.0F, -1.125F};
  const Quantized found = RunBlocks(w, DType::kF32, 1, static_cast<std::int64_t>(w.size()), 1, 128);
  EXPECT_EQ(found.s, std::vector<float>{1.0F});
  EXPECT_EQ(found.q,
            (std::vector<std::uint8_t>{0x7E, 0xFE, 0x38, 0x58, 0x5A, 0x08, 0x01, 0x00, 0x02, 0x00, 0x80, 0xB9}));
}

TEST(QuantizeBlocks, KeepsAllPatternsAtScaleOne) {
  std::vector<float> w;
  std::vector<std::uint8_t> patterns;
  for (int bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7F) == 0x7F) continue;  // NaN
    patterns.push_back(static_cast<std::uint8_t>(bits));
    w.push_back(static_cast<float>(DecodeE4M3(patterns.back())));
  }
  const Quantized found = RunBlocks(w, DType::kF32, 1, static_cast<std::int64_t>(w.size()), 1, 256);
  EXPECT_EQ(found.s, std::vector<float>{1.0F});
  EXPECT_EQ(found.q, patterns);
}

TEST(QuantizeBlocks, OfZerosHasTheLeastScale) {
  const Quantized found = RunBlocks({0.0F, 0.0F, -0.0F, 3.0F, 0.0F, 0.0F}, DType::kF32, 2, 3, 1, 3);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(found.s[0]), 0x2720D7C5U);  // F32(1e-12) / 448 = 2.2321429e-15
  EXPECT_EQ(found.s[1], 3.0F / 448.0F);
  EXPECT_EQ(found.q, (std::vector<std::uint8_t>{0x00, 0x00, 0x80, 0x7E, 0x00, 0x00}));
}

TEST(QuantizeBlocks, NeverMakesNanOfFiniteInput) {
  const float least = std::bit_cast<float>(1U), greatest = std::bit_cast<float>(0x7F7FFFFFU);
  for (const float amax : {least, 300 * least, 448 * least, 449 * least, 700 * least, 0x1p-126F, 1e-12F, greatest}) {
    const Quantized found = RunBlocks({amax, -amax, 0.0F, least}, DType::kF32, 1, 4, 1, 4);
    EXPECT_TRUE(std::isfinite(found.s[0]) && found.s[0] > 0) << amax;
    for (const std::uint8_t q : found.q) EXPECT_NE(q & 0x7F, 0x7F) << amax;
  }
}

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(QuantizeBlocks, SpreadsNanOverItsGroupOnly) {
  const std::vector<float> w = {1.0F, -std::nanf(""), kInf, 0.0F, /**/ 2.0F, -2.0F, 0.0F, -0.0F};
  std::vector<std::uint8_t> q(8);
  std::vector<float> s(2);
  const NonFinite found = QuantizeBlocks(reinterpret_cast<const std::byte*>(w.data()), DType::kF32, 2, 4, {1, 4},
                                         reinterpret_cast<std::byte*>(q.data()), s.data());
  EXPECT_EQ(q, (std::vector<std::uint8_t>{0x7F, 0x7F, 0x7F, 0x7F, 0x7E, 0xFE, 0x00, 0x80}));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(s[0]), 0x7FC00000U);
  EXPECT_EQ(s[1], 2.0F / 448.0F);
  EXPECT_EQ(found.count, 2);
  EXPECT_EQ(found.first, 1);
}

TEST(QuantizeBlocks, GivesZerosBesideAnInfinity) {
  const std::vector<float> w = {5.0F, -5.0F, 0.0F, -0.0F, kInf, -kInf};
  for (const ScaleFormat scales : {ScaleFormat::kFloat, ScaleFormat::kUe8m0}) {
    std::vector<std::uint8_t> q(6);
    float s = 0;
    const NonFinite found = QuantizeBlocks(reinterpret_cast<const std::byte*>(w.data()), DType::kF32, 2, 3, {2, 3, scales},
                                           reinterpret_cast<std::byte*>(q.data()), &s);
    EXPECT_EQ(q, (std::vector<std::uint8_t>{0x00, 0x80, 0x00, 0x80, 0x7F, 0x7F}));
    EXPECT_EQ(s, kInf);
    EXPECT_EQ(found.count, 2);
    EXPECT_EQ(found.first, 4);
  }
}

TEST(QuantizeBlocks, NamesTheFirstNonFiniteElementInRowMajorOrder) {
  std::vector<float> w(6 * 6, 1.0F);
  w[4 * 6 + 0] = kInf;         // in the third row of blocks
  w[1 * 6 + 1] = std::nanf("");  // in the first block, but after the next one in row-major order
  w[0 * 6 + 5] = -kInf;
  std::vector<std::uint8_t> q(36);
  std::vector<float> s(9);
  const NonFinite found = QuantizeBlocks(reinterpret_cast<const std::byte*>(w.data()), DType::kF32, 6, 6, {2, 2},
                                         reinterpret_cast<std::byte*>(q.data()), s.data());
  EXPECT_EQ(found.count, 3);
  EXPECT_EQ(found.first, 5);
}

TEST(ScaleOf, RoundsUpToPowersOfTwo) {
  const Fp8Rule rule{.scales = ScaleFormat::kUe8m0};
  EXPECT_EQ(ScaleOf(448.0F, rule), 1.0F);
  EXPECT_EQ(ScaleOf(std::nextafter(448.0F, 1e9F), rule), 2.0F);  // by bits; the logarithm of it rounds to 0
  EXPECT_EQ(ScaleOf(std::nextafter(448.0F, 0.0F), rule), 1.0F);
  EXPECT_EQ(ScaleOf(1.0F, rule), 0x1p-8F);
  EXPECT_EQ(ScaleOf(0.0F, rule), 0x1p-48F);
  EXPECT_EQ(ScaleOf(std::bit_cast<float>(0x7F7FFFFFU), rule), 0x1p120F);
  EXPECT_TRUE(std::isnan(ScaleOf(std::nanf(""), rule)));
}

TEST(QuantizeBlocks, TakesTheQuotientsWithTheRoundedScale) {
  const std::vector<float> w = {1.0F, 0.75F, -0.3F, 0.001F};
  std::vector<std::uint8_t> q(4);
  float s = 0;
  QuantizeBlocks(reinterpret_cast<const std::byte*>(w.data()), DType::kF32, 1, 4, {1, 4, ScaleFormat::kUe8m0},
                 reinterpret_cast<std::byte*>(q.data()), &s);
  EXPECT_EQ(s, 0x1p-8F);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(q[i], NearestE4M3(static_cast<double>(w[i]) * 256));
}

TEST(QuantizeWithScale, RelaxedRoundsTheQuotientToTheInputsTypeFirst) {
  // 1.0625 is the middle between the codes of 1 and 1.125. The quotient lies above it by less than BF16 and F16 can hold.
  const std::vector<float> w = {1.0F};
  const float scale = std::nextafter(1.0F / 1.0625F, 0.0F);
  ASSERT_GT(1.0F / scale, 1.0625F);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const std::vector<std::byte> bytes = Encode(w, dtype);
    std::byte exact{}, relaxed{};
    QuantizeWithScale(bytes.data(), dtype, 1, scale, {}, &exact);
    QuantizeWithScale(bytes.data(), dtype, 1, scale, {.arithmetic = Arithmetic::kRelax}, &relaxed);
    EXPECT_EQ(exact, std::byte{0x39}) << DTypeName(dtype);
    EXPECT_EQ(relaxed, dtype == DType::kF32 ? std::byte{0x39} : std::byte{0x38}) << DTypeName(dtype);
  }
}

TEST(AmaxOf, CountsWhatIsNotFinite) {
  std::vector<float> w(1000, -0.5F);
  w[7] = -3.0F;
  const auto amax = [&](NonFinite* found) { return AmaxOf(reinterpret_cast<const std::byte*>(w.data()), DType::kF32, 1000, found); };
  NonFinite found{5, 5};
  EXPECT_EQ(amax(&found), 3.0F);
  EXPECT_EQ(found.count, 0);
  w[800] = kInf;
  EXPECT_EQ(amax(&found), kInf);
  w[801] = std::nanf("");
  EXPECT_TRUE(std::isnan(amax(&found)));
  EXPECT_EQ(found.count, 2);
  EXPECT_EQ(found.first, 800);
  EXPECT_TRUE(std::isnan(amax(nullptr)));
  EXPECT_EQ(AmaxOf(nullptr, DType::kBF16, 0, nullptr), 0.0F);
}

TEST(Larger, KeepsNan) {
  EXPECT_EQ(Larger(1.0F, 2.0F), 2.0F);
  EXPECT_TRUE(std::isnan(Larger(std::nanf(""), 2.0F)));
  EXPECT_TRUE(std::isnan(Larger(2.0F, std::nanf(""))));
}

TEST(QuantizeWithScale, OfPiecesGivesWhatTheWholeGives) {
  for (const float odd : {1.0F, kInf, std::nanf("")}) {
    std::vector<float> w = RandomValues(30000, 3, 1.0F);
    w[20001] = odd;
    const auto* bytes = reinterpret_cast<const std::byte*>(w.data());
    for (const ScaleFormat scales : {ScaleFormat::kFloat, ScaleFormat::kUe8m0}) {
      const Fp8Rule rule{100, 300, scales};
      std::vector<std::uint8_t> whole(w.size()), pieces(w.size());
      float s = 0;
      QuantizeBlocks(bytes, DType::kF32, 100, 300, rule, reinterpret_cast<std::byte*>(whole.data()), &s);
      float amax = 0;
      for (std::int64_t at = 0; at < 30000; at += 7001) {
        amax = Larger(amax, AmaxOf(bytes + 4 * at, DType::kF32, std::min<std::int64_t>(7001, 30000 - at), nullptr));
      }
      const float scale = ScaleOf(amax, rule);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(scale), std::bit_cast<std::uint32_t>(s));
      QuantizeWithScale(bytes, DType::kF32, 11, scale, rule, reinterpret_cast<std::byte*>(pieces.data()));
      QuantizeWithScale(bytes + 4 * 11, DType::kF32, 30000 - 11, scale, rule, reinterpret_cast<std::byte*>(pieces.data()) + 11);
      EXPECT_EQ(pieces, whole);
    }
  }
}

TEST(QuantizeBlocks, TouchesNothingForAnEmptyMatrix) {
  const Quantized found = RunBlocks({}, DType::kBF16, 0, 5, 2, 2);
  EXPECT_TRUE(found.q.empty());
  EXPECT_TRUE(found.s.empty());
}

}  // namespace
}  // namespace crossdock::quantize
