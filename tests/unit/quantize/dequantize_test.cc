// SPDX-License-Identifier: Apache-2.0
#include "quantize/dequantize.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace crossdock::quantize {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

std::vector<std::byte> Floats(const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * 4);
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::vector<std::uint16_t> Halves(const std::vector<std::byte>& bytes) {
  std::vector<std::uint16_t> out(bytes.size() / 2);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(Dequantize, MultipliesInF32AndRoundsOnce) {
  const auto q = Bytes({0x38, 0xB8, 0x7E, 0x01, 0x80, 0x7F, 0xFF});  // 1, -1, 448, 2^-9, -0, NaN, -NaN
  // 1.00390625 lies half way between two BF16 values: ties go to the even one.
  const auto s = Floats({1.00390625F});
  std::vector<std::byte> out(14);
  const Tile tile{.cols = 7, .block_cols = 7};
  EXPECT_EQ(Dequantize({q.data(), DType::kF8E4M3, s.data(), DType::kF32}, tile, out.data(), DType::kBF16), 0);
  EXPECT_EQ(Halves(out), (std::vector<std::uint16_t>{0x3F80, 0xBF80, 0x43E1, 0x3B00, 0x8000, 0x7FC0, 0x7FC0}));
}

TEST(Dequantize, TakesEachElementsOwnScale) {
  const auto q = Bytes({0x38, 0x38, 0x38, 0x38, 0x38, 0x38});  // all 1
  const auto s = Floats({1, 2, 3, 4});
  std::vector<std::byte> out(24);
  // Two rows of three columns that begin in the last row and column of a block of 2 x 2.
  const Tile tile{.rows = 2, .cols = 3, .first_row = 1, .first_col = 1, .block_rows = 2, .block_cols = 2, .scale_cols = 2};
  EXPECT_EQ(Dequantize({q.data(), DType::kF8E4M3, s.data(), DType::kF32}, tile, out.data(), DType::kF32), 0);
  EXPECT_EQ(out, Floats({1, 2, 2, 3, 4, 4}));
}

TEST(Dequantize, UnpacksTheLowNibbleFirst) {
  std::vector<std::byte> q = Bytes({0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE});
  q.resize(16);
  const auto s = Bytes({128});  // 2
  std::vector<std::byte> out(64);
  const Tile tile{.cols = 16, .block_cols = 32};
  EXPECT_EQ(Dequantize({q.data(), DType::kU8, s.data(), DType::kU8}, tile, out.data(), DType::kF32), 0);
  EXPECT_EQ(out, Floats({0, 1, 2, 3, 4, 6, 8, 12, -0.0F, -1, -2, -3, -4, -6, -8, -12}));
}

TEST(Dequantize, CountsFiniteValuesThatBecomeInfinite) {
  const auto q = Bytes({0x38, 0x7E, 0x00, 0x7F});  // 1, 448, 0, NaN
  std::vector<std::byte> out(16);
  const Tile tile{.cols = 4, .block_cols = 4};
  for (auto* run : {&Dequantize, &DequantizeReference}) {
    const auto much = Floats({1000});
    EXPECT_EQ(run({q.data(), DType::kF8E4M3, much.data(), DType::kF32}, tile, out.data(), DType::kF16), 1);
    EXPECT_EQ(run({q.data(), DType::kF8E4M3, much.data(), DType::kF32}, tile, out.data(), DType::kBF16), 0);
    const auto more = Floats({1e37F});
    EXPECT_EQ(run({q.data(), DType::kF8E4M3, more.data(), DType::kF32}, tile, out.data(), DType::kF32), 1);
    const auto infinite = Floats({INFINITY});  // not finite before either
    EXPECT_EQ(run({q.data(), DType::kF8E4M3, infinite.data(), DType::kF32}, tile, out.data(), DType::kF32), 0);
  }
}

TEST(Dequantize, KnowsTheTwoReadingsOfAnExponentOf255) {
  const auto q = Bytes({0x38});
  const auto s = Bytes({255});
  float out = 0;
  const auto run = [&](DType type) {
    EXPECT_EQ(Dequantize({q.data(), DType::kF8E4M3, s.data(), type}, {}, reinterpret_cast<std::byte*>(&out), DType::kF32), 0);
    return out;
  };
  EXPECT_TRUE(std::isnan(run(DType::kF8E8M0)));
  EXPECT_TRUE(std::isinf(run(DType::kU8)));
}

class Random : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Random, testing::Range(0, 40));

TEST_P(Random, TilesAreThoseOfTheReference) {
  std::mt19937 rng(static_cast<unsigned>(GetParam()));
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n)); };
  static constexpr DType kScales[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0, DType::kU8};
  static constexpr DType kTo[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (int round = 0; round < 20; ++round) {
    const bool packed = below(3) == 0;
    Tile tile{1 + below(3), 1 + below(9), 1 + below(below(4) == 0 ? 3000 : 200), 0, 0, 1 + below(150), 1 + below(150), 1, 0};
    if (packed) tile = {1, tile.rows, tile.cols, 0, 0, 1, 32, 1, 0};
    tile.first_row = below(tile.block_rows);
    tile.first_col = below(tile.block_cols);
    tile.scale_cols = (tile.first_col + tile.cols + tile.block_cols - 1) / tile.block_cols;
    const std::int64_t scale_rows = (tile.first_row + tile.rows + tile.block_rows - 1) / tile.block_rows;
    if (!packed && below(2) == 0) tile.scale_batch = scale_rows * tile.scale_cols;
    const std::int64_t row = packed ? tile.scale_cols * 16 : tile.cols;
    std::vector<std::byte> q(static_cast<std::size_t>(tile.batches * tile.rows * row));
    for (std::byte& b : q) b = static_cast<std::byte>(rng() & 0xFFU);
    const DType scale_type = kScales[packed ? 3 + below(2) : below(5)];
    std::vector<std::byte> s(static_cast<std::size_t>(tile.batches * scale_rows * tile.scale_cols * 4));
    for (std::size_t i = 0; i < s.size(); i += 4) {
      const auto f = std::bit_cast<std::uint32_t>(std::ldexp(1.0F + static_cast<float>(rng() % 1000) / 999.0F, static_cast<int>(rng() % 200) - 100));
      std::memcpy(s.data() + i, &f, 4);
      if (scale_type != DType::kF32) {
        for (std::size_t k = 0; k < 4; ++k) s[i + k] = static_cast<std::byte>(rng() & 0xFFU);
      }
    }
    const DType type = packed ? DType::kU8 : below(3) == 0 ? DType::kF8E5M2 : DType::kF8E4M3;
    const DType to = kTo[below(3)];
    const auto bytes = static_cast<std::size_t>(tile.batches * tile.rows * tile.cols * ElementSize(to));
    std::vector<std::byte> found(bytes, std::byte{0xAA}), want(bytes, std::byte{0x55});
    const Stored stored{q.data(), type, s.data(), scale_type};
    EXPECT_EQ(Dequantize(stored, tile, found.data(), to), DequantizeReference(stored, tile, want.data(), to));
    ASSERT_EQ(found, want) << "round " << round << " " << DTypeName(type) << " " << DTypeName(scale_type) << " " << DTypeName(to);
  }
}

}  // namespace
}  // namespace crossdock::quantize
