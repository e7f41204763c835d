// SPDX-License-Identifier: Apache-2.0
#include "quantize/block.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/cast.h"
#include "quantize/block_paths.h"

namespace crossdock::quantize {
namespace {

using simd::Path;

constexpr float kMaxE4M3 = 448.0F;
constexpr float kLeastAmax = 1e-12F;
constexpr std::uint32_t kInfinity = 0x7F800000U;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Elements, in a tile that no other follows, from those in work to those asked for.
constexpr std::int64_t kLinesOn = 1024;
/// Elements of a piece whose scale is given: its peak is taken first, and it stays in the L1 cache meanwhile.
constexpr std::int64_t kPiece = 8192;

bool IsWeightType(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32; }

/// Rows without a gap between them are one long row.
simd::Tile Joined(const simd::Tile& tile) {
  if (tile.cols != tile.stride) return tile;
  return {tile.w, tile.dtype, 1, tile.rows * tile.cols, tile.rows * tile.cols, tile.ahead};
}

/// From a tile to the one after the next beside it, else to the one that begins the next rows; in the only one, some lines on.
std::int64_t Ahead(std::int64_t rows, std::int64_t cols, std::int64_t r, std::int64_t c, const Fp8Rule& rule) {
  const std::int64_t across = rule.block_cols < cols - c ? rule.block_cols : 0;
  if (across != 0) return across < cols - c - across ? 2 * across : across;
  return rule.block_rows < rows - r ? rule.block_rows * cols - c : kLinesOn;
}

float AmaxOfPeak(std::uint32_t peak) { return peak > kInfinity ? kNan : std::bit_cast<float>(peak); }

/// Adds the elements of a tile that are not finite; its first element is element `base` of the whole.
void Count(const simd::Tile& tile, std::int64_t base, NonFinite* found) {
  const std::int64_t element = ElementSize(tile.dtype);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (std::int64_t c = 0; c < tile.cols; ++c) {
      const std::int64_t at = r * tile.stride + c;
      if (std::isfinite(kernels::LoadAsDouble(tile.w + at * element, tile.dtype))) continue;
      found->first = found->count == 0 ? base + at : std::min(found->first, base + at);
      ++found->count;
    }
  }
}

/// `peak` is the tile's own.
void QuantizeTile(const Path& path, const simd::Tile& tile, std::uint32_t peak, float scale, Arithmetic arithmetic, std::byte* q) {
  if (std::isnan(scale)) {
    for (std::int64_t r = 0; r < tile.rows; ++r) std::memset(q + r * tile.stride, 0x7F, static_cast<std::size_t>(tile.cols));
    return;
  }
  const bool plain = peak < kInfinity && std::isfinite(scale);
  const auto quantize = plain ? path.quantize : simd::kScalar.quantize;
  quantize(tile, scale, arithmetic == Arithmetic::kRelax, q);
}

}  // namespace

NonFinite QuantizeBlocksBy(const Path& path, const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols,
                           const Fp8Rule& rule, std::byte* q, float* s) {
  CROSSDOCK_CHECK(IsWeightType(dtype));
  CROSSDOCK_CHECK(rule.block_rows > 0 && rule.block_cols > 0);
  NonFinite found;
  const std::int64_t element = ElementSize(dtype);
  // Steps are clipped to what is left, so that a block larger than the matrix cannot overflow.
  for (std::int64_t r = 0, r_end = 0; r < rows; r = r_end) {
    r_end = r + std::min(rule.block_rows, rows - r);
    for (std::int64_t c = 0, c_end = 0; c < cols; c = c_end) {
      c_end = c + std::min(rule.block_cols, cols - c);
      const std::int64_t at = r * cols + c;
      const simd::Tile tile = Joined({w + at * element, dtype, r_end - r, c_end - c, cols, Ahead(rows, cols, r, c, rule)});
      const std::uint32_t peak = path.peak(tile);
      if (peak >= kInfinity) Count(tile, at, &found);
      const float scale = ScaleOf(AmaxOfPeak(peak), rule);
      std::memcpy(s++, &scale, sizeof scale);
      QuantizeTile(path, tile, peak, scale, rule.arithmetic, q + at);
    }
  }
  return found;
}

float AmaxBy(const Path& path, const std::byte* w, DType dtype, std::int64_t count, NonFinite* found) {
  CROSSDOCK_CHECK(IsWeightType(dtype));
  const simd::Tile tile{w, dtype, 1, count, count};
  const std::uint32_t peak = path.peak(tile);
  if (found != nullptr) {
    *found = {};
    if (peak >= kInfinity) Count(tile, 0, found);
  }
  return AmaxOfPeak(peak);
}

void QuantizeWithScaleBy(const Path& path, const std::byte* w, DType dtype, std::int64_t count, float scale,
                         const Fp8Rule& rule, std::byte* q) {
  CROSSDOCK_CHECK(IsWeightType(dtype));
  const std::int64_t element = ElementSize(dtype);
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t n = std::min(kPiece, count - at);
    const simd::Tile tile{w + at * element, dtype, 1, n, n, n};
    QuantizeTile(path, tile, path.peak(tile), scale, rule.arithmetic, q + at);
  }
}

NonFinite QuantizeBlocks(const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols, const Fp8Rule& rule,
                         std::byte* q, float* s) {
  return QuantizeBlocksBy(*simd::Runnable().front(), w, dtype, rows, cols, rule, q, s);
}

float AmaxOf(const std::byte* w, DType dtype, std::int64_t count, NonFinite* found) {
  return AmaxBy(*simd::Runnable().front(), w, dtype, count, found);
}

void QuantizeWithScale(const std::byte* w, DType dtype, std::int64_t count, float scale, const Fp8Rule& rule, std::byte* q) {
  QuantizeWithScaleBy(*simd::Runnable().front(), w, dtype, count, scale, rule, q);
}

float Larger(float amax, float other) { return std::isnan(amax) || std::isnan(other) ? kNan : std::max(amax, other); }

float ScaleOf(float amax, const Fp8Rule& rule) {
  const float scale = Larger(amax, kLeastAmax) / kMaxE4M3;
  if (rule.scales == ScaleFormat::kFloat || !std::isfinite(scale)) return scale;
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const std::uint32_t up = (bits & 0x7FFFFFU) != 0 ? 1U : 0U;
  return std::bit_cast<float>(std::clamp((bits >> 23U) + up, 1U, 254U) << 23U);
}

}  // namespace crossdock::quantize
