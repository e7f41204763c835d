// SPDX-License-Identifier: Apache-2.0
#include "quantize/block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/cast.h"
#include "kernels/small_float.h"

namespace crossdock::quantize {
namespace {

constexpr float kMaxE4M3 = 448.0F;

/// Elements of one row that are widened at a time.
constexpr std::int64_t kRun = 256;

/// A rows x cols matrix, and the block of it in work.
struct Block {
  const std::byte* w;
  DType dtype;
  std::int64_t stride;  ///< elements a row of the matrix
  std::int64_t row, row_end, col, col_end;
};

/// Calls `visit(position in the matrix, values, count)` for runs that together make the block.
template <typename Visit>
void ForEachRun(const Block& b, Visit visit) {
  std::array<float, kRun> values{};
  const std::int64_t element = ElementSize(b.dtype);
  for (std::int64_t r = b.row; r < b.row_end; ++r) {
    for (std::int64_t c = b.col; c < b.col_end; c += kRun) {
      const std::int64_t n = std::min(kRun, b.col_end - c);
      const std::int64_t at = r * b.stride + c;
      kernels::Cast(b.w + at * element, b.dtype, reinterpret_cast<std::byte*>(values.data()), DType::kF32, n);
      visit(at, values.data(), n);
    }
  }
}

float ScaleOf(const Block& block) {
  float amax = 0.0F;
  ForEachRun(block, [&](std::int64_t, const float* values, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(values[i]));
  });
  const float scale = amax / kMaxE4M3;
  return scale == 0.0F ? 1.0F : scale;
}

}  // namespace

void QuantizeBlocks(const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t block_rows,
                    std::int64_t block_cols, std::byte* q, float* s) {
  CROSSDOCK_CHECK(dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32);
  CROSSDOCK_CHECK(block_rows > 0 && block_cols > 0);
  // Steps are clipped to what is left, so that a block larger than the matrix cannot overflow.
  for (std::int64_t r = 0, r_end = 0; r < rows; r = r_end) {
    r_end = r + std::min(block_rows, rows - r);
    for (std::int64_t c = 0, c_end = 0; c < cols; c = c_end) {
      c_end = c + std::min(block_cols, cols - c);
      const Block block{w, dtype, cols, r, r_end, c, c_end};
      const float scale = ScaleOf(block);
      *s++ = scale;
      ForEachRun(block, [&](std::int64_t at, const float* values, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) {
          const float clamped = std::clamp(values[i] / scale, -kMaxE4M3, kMaxE4M3);
          q[at + i] = static_cast<std::byte>(kernels::EncodeSmallFloat(clamped, DType::kF8E4M3));
        }
      });
    }
  }
}

}  // namespace crossdock::quantize
