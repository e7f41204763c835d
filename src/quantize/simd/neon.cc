// SPDX-License-Identifier: Apache-2.0
/// \file  The NEON path of 64-bit ARM, little-endian: 16 elements at a time. What is left of a row passes through a buffer of 16, so
/// that nothing outside the row is touched. Its division, additions and conversions are those of IEEE 754.
#include <arm_neon.h>

#include "quantize/simd/path.h"

namespace crossdock::quantize::simd {
namespace {

constexpr std::int64_t kStep = 16;

inline uint8x16_t Load(const std::byte* p) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)); }
inline uint16x4_t Load4(const std::byte* p) { return vreinterpret_u16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(p))); }

/// What divides: by a power of two as the multiplication by its reciprocal, which gives the same real number to round.
template <bool kMultiply>
struct Divisor {
  float32x4_t by;
  explicit Divisor(float scale) : by(vdupq_n_f32(kMultiply ? 1.0F / scale : scale)) {}
  [[nodiscard]] float32x4_t operator()(float32x4_t x) const { return kMultiply ? vmulq_f32(x, by) : vdivq_f32(x, by); }
};

struct Bf16 {
  static constexpr std::int64_t kSize = 2;
  static float32x4_t Values(const std::byte* p) { return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(Load4(p)), 16)); }
  /// Of magnitudes; infinity stays.
  static float32x4_t Narrow(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd);
    return vreinterpretq_f32_u32(vandq_u32(up, vdupq_n_u32(0xFFFF0000U)));
  }
};

struct F16 {
  static constexpr std::int64_t kSize = 2;
  static float32x4_t Values(const std::byte* p) { return vcvt_f32_f16(vreinterpret_f16_u16(Load4(p))); }
  static float32x4_t Narrow(float32x4_t x) { return vcvt_f32_f16(vcvt_f16_f32(x)); }
};

struct F32 {
  static constexpr std::int64_t kSize = 4;
  static float32x4_t Values(const std::byte* p) { return vreinterpretq_f32_u8(Load(p)); }
  static float32x4_t Narrow(float32x4_t x) { return x; }
};

/// Calls `full(16 elements)` along every row; the last ones are followed by zeros.
template <typename Full>
inline void ForEach16(const Tile& tile, std::int64_t element, Full full) {
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = tile.w + r * tile.stride * element;
    std::int64_t left = tile.cols;
    for (; left >= kStep; left -= kStep, p += kStep * element) full(p);
    if (left > 0) {
      std::byte rest[kStep * 4] = {};
      __builtin_memcpy(rest, p, static_cast<std::size_t>(left * element));
      full(rest);
    }
  }
}

std::uint32_t Peak16Bit(const Tile& tile) {
  const uint16x8_t mask = vdupq_n_u16(0x7FFF);
  uint16x8_t a = vdupq_n_u16(0);
  uint16x8_t b = a;
  ForEach16(tile, 2, [&](const std::byte* p) {
    a = vmaxq_u16(a, vandq_u16(vreinterpretq_u16_u8(Load(p)), mask));
    b = vmaxq_u16(b, vandq_u16(vreinterpretq_u16_u8(Load(p + 16)), mask));
  });
  return vmaxvq_u16(vmaxq_u16(a, b));
}

std::uint32_t PeakF32(const Tile& tile) {
  const uint32x4_t mask = vdupq_n_u32(0x7FFFFFFFU);
  uint32x4_t a = vdupq_n_u32(0);
  uint32x4_t b = a;
  ForEach16(tile, 4, [&](const std::byte* p) {
    a = vmaxq_u32(a, vandq_u32(vreinterpretq_u32_u8(Load(p)), mask));
    b = vmaxq_u32(b, vandq_u32(vreinterpretq_u32_u8(Load(p + 16)), mask));
    a = vmaxq_u32(a, vandq_u32(vreinterpretq_u32_u8(Load(p + 32)), mask));
    b = vmaxq_u32(b, vandq_u32(vreinterpretq_u32_u8(Load(p + 48)), mask));
  });
  return vmaxvq_u32(vmaxq_u32(a, b));
}

std::uint32_t Peak(const Tile& tile) {
  if (tile.dtype == DType::kF32) return PeakF32(tile);
  const std::uint32_t peak = Peak16Bit(tile);
  if (tile.dtype == DType::kBF16) return peak << 16U;
  const float16x4_t half = vreinterpret_f16_u16(vdup_n_u16(static_cast<std::uint16_t>(peak)));
  return vgetq_lane_u32(vreinterpretq_u32_f32(vcvt_f32_f16(half)), 0);
}

/// Four codes with their signs, each in the low byte of 16 bits; the scalar path explains the addition.
template <typename Type, bool kNarrow, bool kMultiply>
inline uint16x4_t Codes(const std::byte* p, Divisor<kMultiply> divide) {
  const float32x4_t w = Type::Values(p);
  float32x4_t quotient = divide(vabsq_f32(w));
  if (kNarrow) quotient = Type::Narrow(quotient);
  const float32x4_t clamped = vminq_f32(quotient, vdupq_n_f32(448.0F));
  const uint32x4_t field = vandq_u32(vreinterpretq_u32_f32(clamped), vdupq_n_u32(0x7F800000U));
  const uint32x4_t exponent = vmaxq_u32(field, vdupq_n_u32(121U << 23U));
  const uint32x4_t c = vaddq_u32(vaddq_u32(exponent, vshrq_n_u32(exponent, 20)), vdupq_n_u32((20U << 23U) - 121U * 8U));
  const uint32x4_t sum = vreinterpretq_u32_f32(vaddq_f32(clamped, vreinterpretq_f32_u32(c)));
  const uint32x4_t sign = vshrq_n_u32(vreinterpretq_u32_f32(w), 24);
  return vmovn_u32(vbslq_u32(vdupq_n_u32(0x7F), sum, vandq_u32(sign, vdupq_n_u32(0x80))));
}

template <typename Type, bool kNarrow, bool kMultiply>
inline uint8x16_t Bytes16(const std::byte* p, Divisor<kMultiply> divide) {
  constexpr std::int64_t kFour = 4 * Type::kSize;
  const uint16x4_t a = Codes<Type, kNarrow>(p, divide);
  const uint16x4_t b = Codes<Type, kNarrow>(p + kFour, divide);
  const uint16x4_t c = Codes<Type, kNarrow>(p + 2 * kFour, divide);
  const uint16x4_t d = Codes<Type, kNarrow>(p + 3 * kFour, divide);
  return vcombine_u8(vmovn_u16(vcombine_u16(a, b)), vmovn_u16(vcombine_u16(c, d)));
}

template <typename Type, bool kNarrow, bool kMultiply>
void QuantizeAs(const Tile& tile, float scale, std::byte* q) {
  const Divisor<kMultiply> divide(scale);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = tile.w + r * tile.stride * Type::kSize;
    auto* out = reinterpret_cast<std::uint8_t*>(q + r * tile.stride);
    std::int64_t left = tile.cols;
    for (; left >= kStep; left -= kStep, p += kStep * Type::kSize, out += kStep) {
      __builtin_prefetch(p + tile.ahead * Type::kSize);
      __builtin_prefetch(out + tile.ahead);
      vst1q_u8(out, Bytes16<Type, kNarrow>(p, divide));
    }
    if (left > 0) {
      std::byte rest[kStep * 4] = {};
      std::uint8_t codes[kStep];
      __builtin_memcpy(rest, p, static_cast<std::size_t>(left * Type::kSize));
      vst1q_u8(codes, Bytes16<Type, kNarrow>(rest, divide));
      __builtin_memcpy(out, codes, static_cast<std::size_t>(left));
    }
  }
}

template <bool kNarrow, bool kMultiply>
void QuantizeAny(const Tile& tile, float scale, std::byte* q) {
  if (tile.dtype == DType::kBF16) return QuantizeAs<Bf16, kNarrow, kMultiply>(tile, scale, q);
  if (tile.dtype == DType::kF16) return QuantizeAs<F16, kNarrow, kMultiply>(tile, scale, q);
  return QuantizeAs<F32, false, kMultiply>(tile, scale, q);
}

void Quantize(const Tile& tile, float scale, bool narrow, std::byte* q) {
  const bool multiply = HasExactReciprocal(scale);
  if (narrow) return multiply ? QuantizeAny<true, true>(tile, scale, q) : QuantizeAny<true, false>(tile, scale, q);
  return multiply ? QuantizeAny<false, true>(tile, scale, q) : QuantizeAny<false, false>(tile, scale, q);
}

}  // namespace

const Path kNeon = {"neon", &Peak, &Quantize};

}  // namespace crossdock::quantize::simd
