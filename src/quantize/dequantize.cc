// SPDX-License-Identifier: Apache-2.0
#include "quantize/dequantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/cast.h"
#include "kernels/small_float.h"

namespace crossdock::quantize {
namespace {

/// Elements of one row that are multiplied at a time, in F32.
constexpr std::int64_t kRowRun = 1024;

constexpr std::array<float, 16> kE2M1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// Which NaN a product of two NaNs is, or of zero and infinity, differs between processors and compilers.
float OneNan(float product) { return std::isnan(product) ? std::numeric_limits<float>::quiet_NaN() : product; }

float ScaleAt(const Stored& from, std::int64_t at) {
  const std::byte* p = from.scales + at * ElementSize(from.scale_type);
  if (from.scale_type == DType::kU8) return std::ldexp(1.0F, static_cast<int>(*p) - 127);
  float scale = 0;
  kernels::Cast(p, from.scale_type, reinterpret_cast<std::byte*>(&scale), DType::kF32, 1);
  return scale;
}

std::int64_t BytesOfRow(const Stored& from, const Tile& tile) {
  return from.type == DType::kU8 ? tile.scale_cols * 16 : tile.cols;
}

unsigned NibbleAt(const std::byte* row, std::int64_t at) {
  const auto byte = static_cast<unsigned>(row[at / 2]);
  return at % 2 == 0 ? byte & 15U : byte >> 4U;
}

/// Multiplies through a table of the 256 values of a byte: the values of the type are decoded once a tile.
class Decoder {
 public:
  explicit Decoder(DType type) : packed_(type == DType::kU8) {
    for (unsigned b = 0; b < 256; ++b) {
      if (packed_) {
        pairs_[b] = {kE2M1[b & 15U], kE2M1[b >> 4U]};
      } else {
        values_[b] = kernels::DecodeSmallFloat(static_cast<std::uint8_t>(b), type);
      }
    }
  }

  /// `count` products from element `first` of a row.
  void Multiply(const std::byte* row, std::int64_t first, std::int64_t count, float scale, float* out) const {
    if (!packed_) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = values_[static_cast<std::size_t>(row[first + i])] * scale;
      return;
    }
    if (first % 2 != 0 && count > 0) {
      *out++ = pairs_[static_cast<std::size_t>(row[first / 2])][1] * scale;
      ++first;
      --count;
    }
    const std::byte* p = row + first / 2;
    for (std::int64_t i = 0; i + 1 < count; i += 2, ++p) {
      const auto& pair = pairs_[static_cast<std::size_t>(*p)];
      out[i] = pair[0] * scale;
      out[i + 1] = pair[1] * scale;
    }
    if (count % 2 != 0) out[count - 1] = pairs_[static_cast<std::size_t>(*p)][0] * scale;
  }

 private:
  bool packed_;
  std::array<float, 256> values_{};
  std::array<std::array<float, 2>, 256> pairs_{};
};

bool IsFinite(const Stored& from, const std::byte* row, std::int64_t at) {
  return from.type == DType::kU8 || std::isfinite(kernels::DecodeSmallFloat(static_cast<std::uint8_t>(row[at]), from.type));
}

/// Among `count` elements under one finite scale: those that are infinite or NaN though their values are finite.
std::int64_t CountOverflows(const Stored& from, const std::byte* row, std::int64_t first, std::int64_t count,
                            const std::byte* out, DType to) {
  std::int64_t overflows = 0;
  const std::int64_t element = ElementSize(to);
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(kernels::LoadAsDouble(out + i * element, to))) continue;
    if (IsFinite(from, row, first + i)) ++overflows;
  }
  return overflows;
}

void CheckTypes(const Stored& from, DType to) {
  CROSSDOCK_CHECK(from.type == DType::kF8E4M3 || from.type == DType::kF8E5M2 || from.type == DType::kU8);
  CROSSDOCK_CHECK(to == DType::kBF16 || to == DType::kF16 || to == DType::kF32);
}

}  // namespace

std::int64_t Dequantize(const Stored& from, const Tile& tile, std::byte* out, DType to) {
  CheckTypes(from, to);
  const Decoder decoder(from.type);
  const std::int64_t row_bytes = BytesOfRow(from, tile);
  const std::int64_t element = ElementSize(to);
  // No value of the type is larger than this: a run under a smaller scale cannot overflow and is not looked at again.
  const float largest = from.type == DType::kF8E5M2 ? 57344.0F : 448.0F;
  const float safe = (to == DType::kF16 ? 65504.0F : 0x1p126F) / largest;
  std::array<float, kRowRun> products;
  std::int64_t overflows = 0;
  const std::byte* row = from.values;
  for (std::int64_t b = 0; b < tile.batches; ++b) {
    for (std::int64_t r = 0; r < tile.rows; ++r, row += row_bytes) {
      const std::int64_t scale_row = b * tile.scale_batch + (tile.first_row + r) / tile.block_rows * tile.scale_cols;
      std::int64_t done = 0;  // elements of this row that are written
      while (done < tile.cols) {
        const std::int64_t run = std::min(kRowRun, tile.cols - done);
        float top = 0;
        for (std::int64_t at = 0; at < run;) {
          const std::int64_t place = tile.first_col + done + at;
          const std::int64_t n = std::min(run - at, tile.block_cols - place % tile.block_cols);
          const float scale = ScaleAt(from, scale_row + place / tile.block_cols);
          const std::int64_t first = from.type == DType::kU8 ? place : done + at;
          decoder.Multiply(row, first, n, scale, products.data() + at);
          top = std::max(top, std::fabs(scale));  // NaN is passed over: what it gives was not finite before
          at += n;
        }
        for (std::int64_t i = 0; i < run; ++i) products[static_cast<std::size_t>(i)] = OneNan(products[static_cast<std::size_t>(i)]);
        kernels::Cast(reinterpret_cast<const std::byte*>(products.data()), DType::kF32, out, to, run);
        for (std::int64_t at = 0; top > safe && at < run;) {
          const std::int64_t place = tile.first_col + done + at;
          const std::int64_t n = std::min(run - at, tile.block_cols - place % tile.block_cols);
          const std::int64_t first = from.type == DType::kU8 ? place : done + at;
          if (std::isfinite(ScaleAt(from, scale_row + place / tile.block_cols))) {
            overflows += CountOverflows(from, row, first, n, out + at * element, to);
          }
          at += n;
        }
        out += run * element;
        done += run;
      }
    }
  }
  return overflows;
}

std::int64_t DequantizeReference(const Stored& from, const Tile& tile, std::byte* out, DType to) {
  CheckTypes(from, to);
  const std::int64_t row_bytes = BytesOfRow(from, tile);
  std::int64_t overflows = 0;
  for (std::int64_t b = 0; b < tile.batches; ++b) {
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::byte* row = from.values + (b * tile.rows + r) * row_bytes;
      for (std::int64_t c = 0; c < tile.cols; ++c) {
        const std::int64_t scale_row = (tile.first_row + r) / tile.block_rows;
        const std::int64_t scale_col = (tile.first_col + c) / tile.block_cols;
        const float scale = ScaleAt(from, b * tile.scale_batch + scale_row * tile.scale_cols + scale_col);
        const float value = from.type == DType::kU8 ? kE2M1[NibbleAt(row, tile.first_col + c)]
                                                    : kernels::DecodeSmallFloat(static_cast<std::uint8_t>(row[c]), from.type);
        kernels::StoreFromDouble(static_cast<double>(OneNan(value * scale)), out, to);
        if (std::isfinite(value) && std::isfinite(scale) && !std::isfinite(kernels::LoadAsDouble(out, to))) ++overflows;
        out += ElementSize(to);
      }
    }
  }
  return overflows;
}

}  // namespace crossdock::quantize
