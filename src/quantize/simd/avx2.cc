// SPDX-License-Identifier: Apache-2.0
/// \file  The AVX2 path, with F16C: 32 elements at a time. What is left of a row passes through a buffer of 32, so that nothing
/// outside the row is touched. Compiled with flags of its own: path.h says what must not stand here.
#include <immintrin.h>

#include "quantize/simd/path.h"

namespace crossdock::quantize::simd {
namespace {

constexpr std::int64_t kStep = 32;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

inline __m256i Load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void AskFor(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
inline __m256i HighHalves(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))); }

/// What divides: by a power of two as the multiplication by its reciprocal, which gives the same real number to round.
template <bool kMultiply>
struct Divisor {
  __m256 by;
  explicit Divisor(float scale) : by(_mm256_set1_ps(kMultiply ? 1.0F / scale : scale)) {}
  [[nodiscard]] __m256 operator()(__m256 x) const { return kMultiply ? _mm256_mul_ps(x, by) : _mm256_div_ps(x, by); }
};

/// e4m3 of magnitudes in the low byte, without sign, as the scalar path explains; bits 8 to 15 are 0, those above are not.
inline __m256i Codes(__m256 magnitude) {
  const __m256 clamped = _mm256_min_ps(magnitude, _mm256_set1_ps(448.0F));
  const __m256i field = _mm256_and_si256(_mm256_castps_si256(clamped), _mm256_set1_epi32(0x7F800000));
  const __m256i exponent = _mm256_max_epi32(field, _mm256_set1_epi32(121 << 23));
  const __m256i c = _mm256_add_epi32(_mm256_add_epi32(exponent, _mm256_srli_epi32(exponent, 20)), _mm256_set1_epi32((20 << 23) - 121 * 8));
  return _mm256_castps_si256(_mm256_add_ps(clamped, _mm256_castsi256_ps(c)));
}

/// Magnitudes rounded to BF16; infinity stays.
inline __m256 ToBf16(__m256 magnitude) {
  const __m256i bits = _mm256_castps_si256(magnitude);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_castsi256_ps(HighHalves(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd)));
}

struct F16 {
  static constexpr std::int64_t kSize = 2;
  static __m256 Values(const std::byte* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static __m256 Narrow(__m256 x) { return _mm256_cvtph_ps(_mm256_cvtps_ph(x, kNearest)); }
  static std::uint32_t Widen(std::uint32_t magnitude) {
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(magnitude))))));
  }
};

struct F32 {
  static constexpr std::int64_t kSize = 4;
  static __m256 Values(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
  static __m256 Narrow(__m256 x) { return x; }
};

/// Calls `full(bytes of 32 elements)` along every row; the last ones are followed by zeros.
template <typename Full>
inline void ForEach32(const Tile& tile, std::int64_t element, Full full) {
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = tile.w + r * tile.stride * element;
    std::int64_t left = tile.cols;
    for (; left >= kStep; left -= kStep, p += kStep * element) full(p);
    if (left > 0) {
      alignas(32) std::byte rest[kStep * 4] = {};
      __builtin_memcpy(rest, p, static_cast<std::size_t>(left * element));
      full(rest);
    }
  }
}

/// Calls `bytes(bytes of 32 elements)`, which gives 32 codes, along every row, and stores what it gives.
template <typename BytesOf>
inline void Store32(const Tile& tile, std::int64_t element, std::byte* q, BytesOf bytes) {
  const std::int64_t ahead = tile.ahead * element;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::byte* p = tile.w + r * tile.stride * element;
    std::byte* out = q + r * tile.stride;
    std::int64_t left = tile.cols;
    for (; left >= kStep; left -= kStep, p += kStep * element, out += kStep) {
      for (std::int64_t line = 0; line < kStep * element; line += 64) AskFor(p + ahead + line);
      AskFor(out + tile.ahead);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes(p));
    }
    if (left > 0) {
      alignas(32) std::byte rest[kStep * 4] = {};
      alignas(32) std::byte codes[kStep];
      __builtin_memcpy(rest, p, static_cast<std::size_t>(left * element));
      _mm256_store_si256(reinterpret_cast<__m256i*>(codes), bytes(rest));
      __builtin_memcpy(out, codes, static_cast<std::size_t>(left));
    }
  }
}

inline std::uint32_t LargestOf(__m256i v) {
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

std::uint32_t Peak16Bit(const Tile& tile) {
  const __m256i mask = _mm256_set1_epi16(0x7FFF);
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  ForEach32(tile, 2, [&](const std::byte* p) {
    a = _mm256_max_epu16(a, _mm256_and_si256(Load(p), mask));
    b = _mm256_max_epu16(b, _mm256_and_si256(Load(p + 32), mask));
  });
  a = _mm256_max_epu16(a, b);
  return LargestOf(_mm256_max_epu32(_mm256_and_si256(a, _mm256_set1_epi32(0xFFFF)), _mm256_srli_epi32(a, 16)));
}

std::uint32_t PeakF32(const Tile& tile) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  ForEach32(tile, 4, [&](const std::byte* p) {
    a = _mm256_max_epu32(a, _mm256_and_si256(Load(p), mask));
    b = _mm256_max_epu32(b, _mm256_and_si256(Load(p + 32), mask));
    a = _mm256_max_epu32(a, _mm256_and_si256(Load(p + 64), mask));
    b = _mm256_max_epu32(b, _mm256_and_si256(Load(p + 96), mask));
  });
  return LargestOf(_mm256_max_epu32(a, b));
}

std::uint32_t Peak(const Tile& tile) {
  if (tile.dtype == DType::kBF16) return Peak16Bit(tile) << 16U;
  if (tile.dtype == DType::kF16) return F16::Widen(Peak16Bit(tile));
  return PeakF32(tile);
}

/// Codes of 16 elements, two in the low half of each 32 bits. Even and odd elements are widened in place.
template <bool kNarrow, bool kMultiply>
inline __m256i Pairs(__m256i w, Divisor<kMultiply> divide) {
  const __m256i magnitude = _mm256_and_si256(w, _mm256_set1_epi16(0x7FFF));
  __m256 even = divide(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 16)));
  __m256 odd = divide(_mm256_castsi256_ps(HighHalves(magnitude)));
  if (kNarrow) {
    even = ToBf16(even);
    odd = ToBf16(odd);
  }
  return _mm256_and_si256(_mm256_or_si256(Codes(even), _mm256_slli_epi32(Codes(odd), 8)), _mm256_set1_epi32(0x7F7F));
}

template <bool kNarrow, bool kMultiply>
void QuantizeBf16(const Tile& tile, float scale, std::byte* q) {
  const Divisor<kMultiply> divide(scale);
  Store32(tile, 2, q, [&](const std::byte* p) {
    const __m256i first = Load(p);
    const __m256i second = Load(p + 32);
    const __m256i codes = _mm256_packus_epi32(Pairs<kNarrow>(first, divide), Pairs<kNarrow>(second, divide));
    // Packing 16 signed bits into 8 saturates, which keeps every sign; both packings mix the halves in the same way.
    const __m256i signs = _mm256_and_si256(_mm256_packs_epi16(first, second), _mm256_set1_epi8(static_cast<char>(0x80)));
    return _mm256_permute4x64_epi64(_mm256_or_si256(codes, signs), 0xD8);
  });
}

template <typename Type, bool kNarrow, bool kMultiply>
void QuantizeWide(const Tile& tile, float scale, std::byte* q) {
  const Divisor<kMultiply> divide(scale);
  const auto eight = [&](const std::byte* p) {
    const __m256 w = Type::Values(p);
    __m256 quotient = divide(_mm256_and_ps(w, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF))));
    if (kNarrow) quotient = Type::Narrow(quotient);
    const __m256i code = _mm256_and_si256(Codes(quotient), _mm256_set1_epi32(0x7F));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(w), 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(code, sign);
  };
  Store32(tile, Type::kSize, q, [&](const std::byte* p) {
    constexpr std::int64_t kEight = 8 * Type::kSize;
    const __m256i low = _mm256_packus_epi32(eight(p), eight(p + kEight));
    const __m256i high = _mm256_packus_epi32(eight(p + 2 * kEight), eight(p + 3 * kEight));
    // In fours: 0 2 4 6 in the lower half, 1 3 5 7 in the upper one.
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  });
}

template <bool kNarrow, bool kMultiply>
void QuantizeAny(const Tile& tile, float scale, std::byte* q) {
  if (tile.dtype == DType::kBF16) return QuantizeBf16<kNarrow, kMultiply>(tile, scale, q);
  if (tile.dtype == DType::kF16) return QuantizeWide<F16, kNarrow, kMultiply>(tile, scale, q);
  return QuantizeWide<F32, false, kMultiply>(tile, scale, q);
}

void Quantize(const Tile& tile, float scale, bool narrow, std::byte* q) {
  const bool multiply = HasExactReciprocal(scale);
  if (narrow) return multiply ? QuantizeAny<true, true>(tile, scale, q) : QuantizeAny<true, false>(tile, scale, q);
  return multiply ? QuantizeAny<false, true>(tile, scale, q) : QuantizeAny<false, false>(tile, scale, q);
}

}  // namespace

const Path kAvx2 = {"avx2", &Peak, &Quantize};

}  // namespace crossdock::quantize::simd
