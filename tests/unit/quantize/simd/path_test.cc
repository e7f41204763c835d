// SPDX-License-Identifier: Apache-2.0
#include "quantize/simd/path.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cast.h"
#include "kernels/small_float.h"

namespace crossdock::quantize::simd {
namespace {

constexpr DType kWeightTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

/// Bytes that end where a page begins that nobody may touch: a path that reads or writes past a row's end does not live on.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + page;
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(base, MAP_FAILED);
    base_ = static_cast<std::byte*>(base);
    EXPECT_EQ(mprotect(base_ + mapped_ - page, page, PROT_NONE), 0);
    data_ = base_ + mapped_ - page - size;
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(base_, mapped_); }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t mapped_ = 0;
};

/// All 65,536 patterns of a 16-bit type in turn.
std::vector<std::byte> AllPatterns() {
  std::vector<std::byte> all(2 * 65536);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(all.data() + 2 * i, &bits, 2);
  }
  return all;
}

std::vector<float> Widened(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> out(bytes.size() / static_cast<std::size_t>(ElementSize(dtype)));
  kernels::Cast(bytes.data(), dtype, reinterpret_cast<std::byte*>(out.data()), DType::kF32, static_cast<std::int64_t>(out.size()));
  return out;
}

/// Scales as groups have them, powers of two among them; and some that no group of these elements would have.
std::vector<float> Scales(int random) {
  std::vector<float> scales = {1e-12F / 448.0F, 1.0F, 0x1p-48F, 0x1p-126F, 0x1p126F, 0x1p127F, 0x1.8p-9F, 448.0F, 3.0e38F / 448.0F, 65504.0F / 448.0F,
                               std::bit_cast<float>(1U), 0x1p-127F, std::nextafter(1.0F, 0.0F), 1.0F / 3.0F};
  std::mt19937 rng(1);
  for (int i = 0; i < random; ++i) scales.push_back(std::ldexp(1.0F + static_cast<float>(rng() % 8388608U) * 0x1p-23F, static_cast<int>(rng() % 30U) - 25));
  return scales;
}

/// The definition, by the general codec of 8-bit floats, which shares no step with the paths.
std::uint8_t Defined(float w, float scale, bool narrow, DType dtype) {
  float quotient = w / scale;
  if (narrow && dtype != DType::kF32) {
    std::byte rounded[4];
    kernels::StoreFromDouble(static_cast<double>(quotient), rounded, dtype);
    quotient = static_cast<float>(kernels::LoadAsDouble(rounded, dtype));
  }
  if (std::isnan(quotient)) return 0x7F;
  return kernels::EncodeSmallFloat(std::clamp(quotient, -448.0F, 448.0F), DType::kF8E4M3);
}

TEST(ScalarPath, GivesTheDefinitionOnEveryPattern) {
  const std::vector<std::byte> all = AllPatterns();
  std::vector<std::byte> q(65536);
  std::vector<float> scales = Scales(10);
  scales.push_back(std::numeric_limits<float>::infinity());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::vector<float> w = Widened(all, dtype);
    for (const float scale : scales) {
      for (const bool narrow : {false, true}) {
        kScalar.quantize({all.data(), dtype, 256, 256, 256}, scale, narrow, q.data());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < 65536; ++i) wrong += static_cast<std::uint8_t>(q[i]) != Defined(w[i], scale, narrow, dtype) ? 1U : 0U;
        EXPECT_EQ(wrong, 0U) << DTypeName(dtype) << " / " << scale << (narrow ? " narrow" : "");
      }
    }
  }
}

/// Of F32: all quotients at which the code changes, with the numbers next to them, and numbers at random.
std::vector<std::byte> FloatsAtTheBorders() {
  std::vector<float> w = {0.0F, 464.0F, std::nextafter(448.0F, 1e9F), 1e30F, std::bit_cast<float>(0x7F7FFFFFU), std::bit_cast<float>(1U)};
  for (int code = 0; code < 126; ++code) {
    const float low = kernels::DecodeSmallFloat(static_cast<std::uint8_t>(code), DType::kF8E4M3);
    const float high = kernels::DecodeSmallFloat(static_cast<std::uint8_t>(code + 1), DType::kF8E4M3);
    const float middle = (low + high) / 2;
    for (const float v : {low, middle}) w.insert(w.end(), {v, std::nextafter(v, 1e9F), std::nextafter(v, -1.0F)});
  }
  std::mt19937 rng(7);
  for (int i = 0; i < 20000; ++i) {
    const auto v = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
    w.push_back(std::isfinite(v) ? v : 1.0F);
  }
  const std::size_t count = w.size();
  for (std::size_t i = 0; i < count; ++i) w.push_back(-w[i]);
  std::vector<std::byte> bytes(w.size() * 4);
  std::memcpy(bytes.data(), w.data(), bytes.size());
  return bytes;
}

TEST(ScalarPath, GivesTheDefinitionAtEveryBorder) {
  const std::vector<std::byte> bytes = FloatsAtTheBorders();
  const std::vector<float> w = Widened(bytes, DType::kF32);
  std::vector<std::byte> q(w.size());
  for (const float scale : {1.0F, 0x1p-20F, 1.0F / 3.0F, 1.7e-5F}) {
    kScalar.quantize({bytes.data(), DType::kF32, 1, static_cast<std::int64_t>(w.size()), 0}, scale, false, q.data());
    for (std::size_t i = 0; i < w.size(); ++i) {
      ASSERT_EQ(static_cast<std::uint8_t>(q[i]), Defined(w[i], scale, false, DType::kF32)) << w[i] << " / " << scale;
    }
  }
}

/// A path is told of finite elements only: others are set to 1.
void MakeFinite(std::vector<std::byte>& bytes, DType dtype) {
  const std::int64_t size = ElementSize(dtype);
  for (std::byte* p = bytes.data(); p != bytes.data() + bytes.size(); p += size) {
    if (!std::isfinite(kernels::LoadAsDouble(p, dtype))) kernels::StoreFromDouble(1.0, p, dtype);
  }
}

TEST(Paths, GiveTheScalarBytesOnEveryPatternAndBorder) {
  for (const DType dtype : kWeightTypes) {
    std::vector<std::byte> w = dtype == DType::kF32 ? FloatsAtTheBorders() : AllPatterns();
    MakeFinite(w, dtype);
    const auto count = static_cast<std::int64_t>(w.size()) / ElementSize(dtype);
    const Tile tile{w.data(), dtype, 1, count, count};
    std::vector<std::byte> expected(static_cast<std::size_t>(count)), found(expected.size());
    for (const float scale : Scales(30)) {
      for (const bool narrow : {false, true}) {
        kScalar.quantize(tile, scale, narrow, expected.data());
        for (const Path* path : Runnable()) {
          std::fill(found.begin(), found.end(), std::byte{0x55});
          path->quantize(tile, scale, narrow, found.data());
          EXPECT_TRUE(found == expected) << path->name << " " << DTypeName(dtype) << " / " << scale << (narrow ? " narrow" : "");
        }
      }
    }
  }
}

/// A quotient that is off by one last place shows only where the code changes: elements next to every such place, for scales
/// of all kinds of mantissa, of those close to two above all.
TEST(Paths, GiveTheScalarBytesNextToEveryBorderOfManyScales) {
  std::vector<float> borders;
  for (int code = 0; code < 126; ++code) {
    const float low = kernels::DecodeSmallFloat(static_cast<std::uint8_t>(code), DType::kF8E4M3);
    borders.push_back((low + kernels::DecodeSmallFloat(static_cast<std::uint8_t>(code + 1), DType::kF8E4M3)) / 2);
  }
  std::mt19937 rng(11);
  std::vector<float> w(borders.size() * 7);
  std::vector<std::byte> expected(w.size()), found(w.size());
  const auto count = static_cast<std::int64_t>(w.size());
  for (int i = 0; i < 1500; ++i) {
    const auto any = static_cast<std::uint32_t>(rng() & 0x7FFFFFU), few = static_cast<std::uint32_t>(i) / 3U;
    const std::uint32_t mantissa = i % 3 == 0 ? any : i % 3 == 1 ? 0x7FFFFFU - few : few;
    const std::uint32_t exponent = 127U - 48U + static_cast<std::uint32_t>(rng() % 160U);  // all that groups can have
    const auto scale = std::bit_cast<float>((exponent << 23U) | mantissa);
    for (std::size_t b = 0; b < borders.size(); ++b) {
      const float at = borders[b] * scale;
      const auto bits = std::bit_cast<std::uint32_t>(at);
      for (std::uint32_t d = 0; d < 7; ++d) w[7 * b + d] = std::bit_cast<float>(bits + d - 3);
    }
    const Tile tile{reinterpret_cast<const std::byte*>(w.data()), DType::kF32, 1, count, count};
    kScalar.quantize(tile, scale, false, expected.data());
    for (const Path* path : Runnable()) {
      path->quantize(tile, scale, false, found.data());
      ASSERT_TRUE(found == expected) << path->name << " / " << scale;
    }
  }
}

TEST(Paths, FindEveryPatternAsThePeakOfItsTile) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::vector<std::byte> all = AllPatterns();
    for (const Path* path : Runnable()) {
      std::vector<std::byte> w(2 * 67);
      for (std::size_t i = 0; i < 65536; ++i) {
        const std::size_t at = i % 67;  // each place of a vector, and of a row's end
        std::memcpy(w.data() + 2 * at, all.data() + 2 * i, 2);
        float value = 0;
        kernels::Cast(all.data() + 2 * i, dtype, reinterpret_cast<std::byte*>(&value), DType::kF32, 1);
        const std::uint32_t peak = path->peak({w.data(), dtype, 1, 67, 67});
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
        if (std::isnan(value)) {
          ASSERT_GT(peak, 0x7F800000U) << path->name << " " << i;
        } else {
          ASSERT_EQ(peak, bits) << path->name << " " << i;
        }
        std::memset(w.data() + 2 * at, 0, 2);
      }
    }
  }
}

class PathsOnTiles : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, PathsOnTiles, testing::Range(0, 12));

/// Odd sizes, gaps between rows, any alignment; nothing outside the tile is read or written.
TEST_P(PathsOnTiles, GiveTheScalarBytesAndTouchNothingElse) {
  std::mt19937 rng(static_cast<unsigned>(GetParam()));
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n)); };
  for (int round = 0; round < 40; ++round) {
    const DType dtype = kWeightTypes[below(3)];
    const auto element = static_cast<std::size_t>(ElementSize(dtype));
    const std::int64_t rows = 1 + below(5), cols = below(4) == 0 ? 1 + below(600) : 1 + below(70), gap = below(3) == 0 ? 0 : below(40);
    const std::int64_t stride = cols + gap, span = (rows - 1) * stride + cols;
    const auto shift = static_cast<std::size_t>(below(2));  // bytes after the end: what is loaded is aligned to nothing
    const auto bytes = static_cast<std::size_t>(span) * element;
    std::vector<std::byte> w(bytes);
    for (std::byte& b : w) b = static_cast<std::byte>(rng() & 0xFFU);
    MakeFinite(w, dtype);
    const GuardedBytes in(bytes + shift), out(static_cast<std::size_t>(span));
    std::memcpy(in.data(), w.data(), bytes);
    const Tile tile{in.data(), dtype, rows, cols, stride};
    const std::uint32_t peak = kScalar.peak(tile);
    const float scale = below(4) == 0 ? 0x1p-5F : std::max(std::bit_cast<float>(peak), 1e-12F) / 448.0F;
    const bool narrow = below(2) == 0;
    std::vector<std::byte> expected(static_cast<std::size_t>(span), std::byte{0x55});
    kScalar.quantize(tile, scale, narrow, expected.data());
    for (const Path* path : Runnable()) {
      SCOPED_TRACE(std::string(path->name) + " round " + std::to_string(round));
      EXPECT_EQ(path->peak(tile), peak);
      std::memset(out.data(), 0x55, expected.size());
      path->quantize(tile, scale, narrow, out.data());
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size()), 0);
    }
  }
}

TEST(Paths, EndWithTheScalarOne) {
  ASSERT_FALSE(Runnable().empty());
  EXPECT_EQ(Runnable().back(), &kScalar);
}

}  // namespace
}  // namespace crossdock::quantize::simd
