// SPDX-License-Identifier: Apache-2.0
/// \file  The AVX-512 path: 32 elements of BF16 at a time, 16 of F16 or F32; what is left of a row by masked loads and stores.
/// Compiled with flags of its own: path.h says what must not stand here.
#include <immintrin.h>

#include "quantize/simd/path.h"

namespace crossdock::quantize::simd {
namespace {

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

inline void AskFor(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

inline const std::byte* Row(const Tile& tile, std::int64_t r, std::int64_t element) { return tile.w + r * tile.stride * element; }

/// The first `n` of 32 or 16 lanes, all of them from there on.
inline __mmask32 First32(std::int64_t n) { return n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1; }
inline __mmask16 First16(std::int64_t n) { return n >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << n) - 1); }

/// The ways to the F32 quotient x / s of magnitudes. All give the one that IEEE division gives, rounded to nearest, ties to even.
///
/// kMultiply, for powers of two: x * (1 / s) is the same real number.
///
/// kRefine takes half the time of a division, or less. y = RN(1/s) is made once by a division; then
///     q0 = RN(x y)   r0 = RN(x - s q0)   q1 = RN(q0 + r0 y)   r1 = RN(x - s q1)   q2 = RN(q1 + r1 y)
/// with one rounding each. Let 1 <= s < 2 and 1 <= x < 2, as powers of two change nothing here, so |y - 1/s| <= 2^-25, and let u be the
/// last place of the quotient: u = 2^-23 if x >= s, else 2^-24.
///   1. |q0 - x/s| <= x 2^-25 + u/2 < 1.5 u. So |r0| < 1.5 u s, and q0 + r0 y differs from x/s by less than
///      1.5 u s 2^-25 + what rounding r0 adds < 2^-22 u =: d. Hence |q1 - x/s| <= u/2 + d.
///   2. r1 is exact: a multiple of u 2^-23 below 2^24 of those.
///   3. q1 + r1 y = x/s + r1 (y - 1/s), and |r1 (y - 1/s)| <= s |q1 - x/s| 2^-25 =: e.
///   4. A middle m between two neighbours has 25 bits and is odd in the last, so x - s m is never 0, and |x/s - m| >= u 2^-24 / s.
///      Let h be the distance of x/s from the nearest m. Then |q1 - x/s| is at most u/2 - h if q1 is RN(x/s), and at most u/2 + h if it
///      is not (the neighbour across m; h < d). It is enough that e < h: then both sides of 3. lie on one side of m and round alike.
///      With the larger one: e <= s (u/2 + h) 2^-25 < h follows from s u 2^-26 < h (1 - 2^-24), and, as h >= u 2^-24 / s, from
///      s^2 < 4 (1 - 2^-24), which the largest s, 2 - 2^-23, fulfils: its square is below 4 - 2^-22.
/// Nothing under- or overflows for 2^-60 <= s <= 2^100 where it matters: from x/s = 2^-11 on, all terms are multiples of
/// 2^-60-23-11-23 = 2^-117. Smaller quotients stay below 2^-10, whose code is 0, with all errors. For x/s beyond F32, which no group's
/// own scale allows, q2 is infinity or NaN; Codes makes 448 of both, as of the infinity that a division gives.
enum class Way { kMultiply, kRefine, kDivide };

template <Way kWay>
struct Divisor {
  __m512 scale;
  __m512 inverse;
  explicit Divisor(float by) : scale(_mm512_set1_ps(by)), inverse(_mm512_set1_ps(1.0F / by)) {}
  [[nodiscard]] __m512 operator()(__m512 x) const {
    if (kWay == Way::kDivide) return _mm512_div_ps(x, scale);
    __m512 q = _mm512_mul_ps(x, inverse);
    if (kWay == Way::kMultiply) return q;
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(scale, q, x), inverse, q);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(scale, q, x), inverse, q);
  }
};

/// Number c of the scalar path, for the exponents -6 to 8 by their last four bits as they are stored.
inline __m512i RoundingNumbers() {
  alignas(64) std::uint32_t numbers[16] = {};
  for (std::uint32_t exponent = 121; exponent <= 135; ++exponent) {
    numbers[exponent & 15U] = ((exponent + 20U) << 23U) + 8U * (exponent - 121U);
  }
  return _mm512_load_si512(numbers);
}

/// e4m3 of magnitudes in the low byte, without sign; bits 8 to 15 are 0, those above are not. NaN is taken for infinity: the
/// order of the first minimum's operands matters.
inline __m512i Codes(__m512 magnitude, __m512i numbers) {
  const __m512 clamped = _mm512_min_ps(magnitude, _mm512_set1_ps(448.0F));
  const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(_mm512_max_ps(clamped, _mm512_set1_ps(0x1p-6F))), 23);
  const __m512 c = _mm512_castsi512_ps(_mm512_permutexvar_epi32(exponent, numbers));
  return _mm512_castps_si512(_mm512_add_ps(clamped, c));
}

/// Magnitudes rounded to BF16; infinity stays.
inline __m512 ToBf16(__m512 magnitude) {
  const __m512i bits = _mm512_castps_si512(magnitude);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

struct Bf16 {
  static __m512i Load(__mmask32 lanes, const std::byte* p) { return _mm512_maskz_loadu_epi16(lanes, p); }
  static std::uint32_t Widen(std::uint32_t magnitude) { return magnitude << 16U; }
};

struct F16 {
  static constexpr std::int64_t kSize = 2;
  static __m512i Load(__mmask32 lanes, const std::byte* p) { return _mm512_maskz_loadu_epi16(lanes, p); }
  static std::uint32_t Widen(std::uint32_t magnitude) {
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(magnitude))))));
  }
  static __m512 Values(__mmask16 lanes, const std::byte* p) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p)); }
  static __m512 Narrow(__m512 x) { return _mm512_cvtph_ps(_mm512_cvtps_ph(x, kNearest)); }
};

struct F32 {
  static constexpr std::int64_t kSize = 4;
  static __m512 Values(__mmask16 lanes, const std::byte* p) { return _mm512_maskz_loadu_ps(lanes, p); }
  static __m512 Narrow(__m512 x) { return x; }
};

template <typename Type>
std::uint32_t Peak16Bit(const Tile& tile) {
  const __m512i mask = _mm512_set1_epi16(0x7FFF);
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = Row(tile, r, 2);
    std::int64_t left = tile.cols;
    for (; left >= 64; left -= 64, p += 128) {
      a = _mm512_max_epu16(a, _mm512_and_si512(_mm512_loadu_si512(p), mask));
      b = _mm512_max_epu16(b, _mm512_and_si512(_mm512_loadu_si512(p + 64), mask));
    }
    for (; left > 0; left -= 32, p += 64) a = _mm512_max_epu16(a, _mm512_and_si512(Type::Load(First32(left), p), mask));
  }
  a = _mm512_max_epu16(a, b);
  const __m512i both = _mm512_max_epu32(_mm512_and_si512(a, _mm512_set1_epi32(0xFFFF)), _mm512_srli_epi32(a, 16));
  return Type::Widen(_mm512_reduce_max_epu32(both));
}

std::uint32_t PeakF32(const Tile& tile) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = Row(tile, r, 4);
    std::int64_t left = tile.cols;
    for (; left >= 32; left -= 32, p += 128) {
      a = _mm512_max_epu32(a, _mm512_and_si512(_mm512_loadu_si512(p), mask));
      b = _mm512_max_epu32(b, _mm512_and_si512(_mm512_loadu_si512(p + 64), mask));
    }
    for (; left > 0; left -= 16, p += 64) {
      a = _mm512_max_epu32(a, _mm512_and_si512(_mm512_maskz_loadu_epi32(First16(left), p), mask));
    }
  }
  return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
}

std::uint32_t Peak(const Tile& tile) {
  if (tile.dtype == DType::kBF16) return Peak16Bit<Bf16>(tile);
  if (tile.dtype == DType::kF16) return Peak16Bit<F16>(tile);
  return PeakF32(tile);
}

/// 32 bytes of 32 elements. Even and odd elements are widened in place, as the halves of 32 bits, and their codes put side by
/// side in 16; so nothing is moved between lanes until those are packed.
template <bool kNarrow, Way kWay>
__m256i Bytes32(__m512i w, Divisor<kWay> divide, __m512i numbers) {
  const __m512i magnitude = _mm512_and_si512(w, _mm512_set1_epi16(0x7FFF));
  __m512 even = divide(_mm512_castsi512_ps(_mm512_slli_epi32(magnitude, 16)));
  __m512 odd = divide(_mm512_castsi512_ps(_mm512_and_si512(magnitude, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U)))));
  if (kNarrow) {
    even = ToBf16(even);
    odd = ToBf16(odd);
  }
  const __m512i pair = _mm512_or_si512(Codes(even, numbers), _mm512_slli_epi32(Codes(odd, numbers), 8));
  const __m256i codes = _mm512_cvtepi32_epi16(pair);
  return _mm256_mask_add_epi8(codes, _mm512_movepi16_mask(w), codes, _mm256_set1_epi8(static_cast<char>(0x80)));
}

template <bool kNarrow, Way kWay>
void QuantizeBf16(const Tile& tile, float scale, std::byte* q) {
  const Divisor<kWay> divide(scale);
  const __m512i numbers = RoundingNumbers();
  const std::int64_t ahead = 2 * tile.ahead;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = Row(tile, r, 2);
    std::byte* out = q + r * tile.stride;
    std::int64_t left = tile.cols;
    for (; left >= 32; left -= 32, p += 64, out += 32) {
      AskFor(p + ahead);
      AskFor(out + tile.ahead);
      const __m256i bytes = Bytes32<kNarrow, kWay>(_mm512_loadu_si512(p), divide, numbers);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
    }
    if (left > 0) {
      const __mmask32 lanes = First32(left);
      _mm256_mask_storeu_epi8(out, lanes, Bytes32<kNarrow, kWay>(Bf16::Load(lanes, p), divide, numbers));
    }
  }
}

template <typename Type, bool kNarrow, Way kWay>
void QuantizeWide(const Tile& tile, float scale, std::byte* q) {
  const Divisor<kWay> divide(scale);
  const __m512i numbers = RoundingNumbers();
  const std::int64_t ahead = Type::kSize * tile.ahead;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = Row(tile, r, Type::kSize);
    std::byte* out = q + r * tile.stride;
    for (std::int64_t left = tile.cols; left > 0; left -= 16, p += 16 * Type::kSize, out += 16) {
      AskFor(p + ahead);
      AskFor(out + tile.ahead);
      const __mmask16 lanes = First16(left);
      const __m512 w = Type::Values(lanes, p);
      __m512 quotient = divide(_mm512_abs_ps(w));
      if (kNarrow) quotient = Type::Narrow(quotient);
      const __m128i codes = _mm512_cvtepi32_epi8(Codes(quotient, numbers));
      const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(w));
      _mm_mask_storeu_epi8(out, lanes, _mm_mask_add_epi8(codes, negative, codes, _mm_set1_epi8(static_cast<char>(0x80))));
    }
  }
}

template <bool kNarrow, Way kWay>
void QuantizeAny(const Tile& tile, float scale, std::byte* q) {
  if (tile.dtype == DType::kBF16) return QuantizeBf16<kNarrow, kWay>(tile, scale, q);
  if (tile.dtype == DType::kF16) return QuantizeWide<F16, kNarrow, kWay>(tile, scale, q);
  return QuantizeWide<F32, false, kWay>(tile, scale, q);
}

template <bool kNarrow>
void QuantizeThatWay(const Tile& tile, float scale, std::byte* q) {
  if (HasExactReciprocal(scale)) return QuantizeAny<kNarrow, Way::kMultiply>(tile, scale, q);
  if (scale >= 0x1p-60F && scale <= 0x1p+100F) return QuantizeAny<kNarrow, Way::kRefine>(tile, scale, q);
  return QuantizeAny<kNarrow, Way::kDivide>(tile, scale, q);
}

void Quantize(const Tile& tile, float scale, bool narrow, std::byte* q) {
  return narrow ? QuantizeThatWay<true>(tile, scale, q) : QuantizeThatWay<false>(tile, scale, q);
}

}  // namespace

const Path kAvx512 = {"avx512", &Peak, &Quantize};

}  // namespace crossdock::quantize::simd
