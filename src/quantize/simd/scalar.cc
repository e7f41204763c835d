// SPDX-License-Identifier: Apache-2.0
/// \file  The scalar path: the reference of the others, and what machines run that have none of them.
#include <algorithm>
#include <array>
#include <bit>

#include "kernels/cast.h"
#include "quantize/simd/path.h"

namespace crossdock::quantize::simd {
namespace {

/// Elements of one row that are widened at a time.
constexpr std::int64_t kRun = 256;
using Run = std::array<float, kRun>;

std::byte* BytesOf(Run& run) { return reinterpret_cast<std::byte*>(run.data()); }

/// Calls `visit(place of the first from the start of the tile, values, count)` for runs that together make the tile.
template <typename Visit>
void ForEachRun(const Tile& tile, Visit visit) {
  Run values;
  const std::int64_t element = ElementSize(tile.dtype);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (std::int64_t c = 0; c < tile.cols; c += kRun) {
      const std::int64_t n = std::min(kRun, tile.cols - c);
      const std::int64_t at = r * tile.stride + c;
      kernels::Cast(tile.w + at * element, tile.dtype, BytesOf(values), DType::kF32, n);
      visit(at, values, n);
    }
  }
}

std::uint32_t Peak(const Tile& tile) {
  std::int32_t peak = 0;
  ForEachRun(tile, [&](std::int64_t, const Run& values, std::int64_t n) {
    std::int32_t here = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      here = std::max(here, std::bit_cast<std::int32_t>(values[static_cast<std::size_t>(i)]) & 0x7FFFFFFF);
    }
    peak = std::max(peak, here);
  });
  return static_cast<std::uint32_t>(peak);
}

/// To nearest, ties to even, beyond 448 to 448; every NaN is 0x7F. A magnitude of exponent e >= -6 has the unit 2^(e-3), one
/// below 2^-6 the unit 2^-9: the last place of F32 numbers from 2^(e+20), or 2^14. So the addition of such a number c rounds, and
/// leaves the count of units in its low bits. The codes of an exponent begin at 8 * (e + 6), which, less the 8 units that
/// the leading one makes, is put into the low bits of c before; it is even, so ties still go to the even code.
/// Signed integers, as the baseline of x86 has no least and greatest of unsigned ones.
std::byte EncodeE4M3(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = bits & 0x7FFFFFFF;
  const std::int32_t clamped = std::min(magnitude, 0x43E00000);              // 448
  const std::int32_t exponent = std::max(clamped & 0x7F800000, 121 << 23);   // 2^-6
  const std::int32_t c = exponent + (20 << 23) + (exponent >> 20) - 121 * 8;  // 8 * (e + 6)
  const auto sum = std::bit_cast<std::int32_t>(std::bit_cast<float>(clamped) + std::bit_cast<float>(c));
  const std::int32_t code = (sum & 0x7F) | ((bits >> 24) & 0x80);
  return static_cast<std::byte>(magnitude > 0x7F800000 ? 0x7F : code);
}

// Loops over plain pointers, of which the compiler makes vector code.
void Divide(float* values, std::int64_t n, float scale) {
  for (std::int64_t i = 0; i < n; ++i) values[i] /= scale;
}
void Encode(const float* __restrict values, std::int64_t n, std::byte* __restrict out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = EncodeE4M3(values[i]);
}

void Quantize(const Tile& tile, float scale, bool narrow, std::byte* q) {
  ForEachRun(tile, [&](std::int64_t at, Run& values, std::int64_t n) {
    Divide(values.data(), n, scale);
    if (narrow && tile.dtype != DType::kF32) {
      Run rounded;
      kernels::Cast(BytesOf(values), DType::kF32, BytesOf(rounded), tile.dtype, n);
      kernels::Cast(BytesOf(rounded), tile.dtype, BytesOf(values), DType::kF32, n);
    }
    Encode(values.data(), n, q + at);
  });
}

}  // namespace

const Path kScalar = {"scalar", &Peak, &Quantize};

}  // namespace crossdock::quantize::simd
