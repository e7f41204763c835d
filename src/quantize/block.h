// SPDX-License-Identifier: Apache-2.0
/// \file  FP8 (E4M3) quantization of a matrix in groups: s = max(amax(group), 1e-12) / 448, q = e4m3(clamp(w / s, +-448)).
/// Arithmetic: F32 throughout, with IEEE divisions (never a multiplication by a reciprocal that is not exact: it changes
/// bytes), e4m3 rounded to nearest, ties to even. -0 keeps its sign. A group of zeros has s = F32(1e-12) / 448 and bytes
/// 0x00 and 0x80. Edge groups use their real elements only. The stored scale is s, the multiplier that leads back.
/// Not finite input is never refused here, but counted. A group with a NaN has s = NaN and all its bytes 0x7F. A group with
/// an infinity and no NaN has s = infinity: its finite elements become zeros with their signs, the infinities 0x7F.
/// Invariant: the bytes depend on the arguments only, not on the machine: every path of simd/ gives those of the scalar one.
/// Threads: pure. Buffers may have any alignment and must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace crossdock::quantize {

enum class ScaleFormat : std::uint8_t {
  kFloat,  ///< s as it is
  kUe8m0,  ///< the least power of two that is not below s; the quotients are taken with that one
};

enum class Arithmetic : std::uint8_t {
  kReference,  ///< the quotient is F32 until it becomes e4m3
  /// The quotient of a BF16 or F16 element is rounded to that type first. Torch does so where it divides by a scale without
  /// dimensions, so this is what peers make of one scale for a whole tensor; with other groups it is nobody's arithmetic.
  kRelax,
};

struct Fp8Rule {
  std::int64_t block_rows = 128;  ///< the rows and columns of a group: one row of all columns is a channel, all of both the tensor
  std::int64_t block_cols = 128;
  ScaleFormat scales = ScaleFormat::kFloat;
  Arithmetic arithmetic = Arithmetic::kReference;
  bool operator==(const Fp8Rule&) const = default;
};

/// Elements that are NaN or infinite.
struct NonFinite {
  std::int64_t count = 0;
  std::int64_t first = 0;  ///< the first of them, counted in elements in row-major order; 0 when there is none
};

/// `w`: rows x cols elements of `dtype`, row-major. `q`: rows x cols bytes. `s`: ceil(rows / block_rows) x
/// ceil(cols / block_cols) floats, row-major. REQUIRES: BF16, F16 or F32; sizes >= 0, block sizes > 0.
NonFinite QuantizeBlocks(const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols, const Fp8Rule& rule,
                         std::byte* q, float* s);

/// For a group that is not in one place at one time: AmaxOf its pieces, Larger of those, ScaleOf that, QuantizeWithScale of
/// each piece give what QuantizeBlocks gives of the whole.
/// max |w|; NaN when one of them is NaN; 0 of nothing. `found`, unless null, is overwritten.
[[nodiscard]] float AmaxOf(const std::byte* w, DType dtype, std::int64_t count, NonFinite* found);
/// The larger, or NaN if either is.
[[nodiscard]] float Larger(float amax, float other);
/// The scale of a group, as it is stored. Infinity and NaN stay what they are in both formats.
[[nodiscard]] float ScaleOf(float amax, const Fp8Rule& rule);
/// Bytes of `count` elements. REQUIRES: a scale above 0, or NaN. Block sizes of the rule are not looked at.
void QuantizeWithScale(const std::byte* w, DType dtype, std::int64_t count, float scale, const Fp8Rule& rule, std::byte* q);

}  // namespace crossdock::quantize
