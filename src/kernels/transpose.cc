// SPDX-License-Identifier: Apache-2.0
#include "kernels/transpose.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace crossdock::kernels {
namespace {

constexpr std::int64_t kTile = 64;

/// Any element size: loads and stores by memcpy, since file bytes have no alignment.
template <typename T>
void ScalarBlock(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
                 std::int64_t rows, std::int64_t cols) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      T v;
      std::memcpy(&v, from + (j * from_stride + i) * kSize, sizeof(T));
      std::memcpy(to + (i * to_stride + j) * kSize, &v, sizeof(T));
    }
  }
}

#if defined(__SSE2__)

__m128i Load(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void Store(std::byte* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }

/// Eight rows of eight 2-byte elements become eight columns: three rounds of interleaving.
void Tile8x8(const std::byte* from, std::int64_t from_bytes, std::byte* to, std::int64_t to_bytes) {
  const __m128i r0 = Load(from), r1 = Load(from + from_bytes);
  const __m128i r2 = Load(from + 2 * from_bytes), r3 = Load(from + 3 * from_bytes);
  const __m128i r4 = Load(from + 4 * from_bytes), r5 = Load(from + 5 * from_bytes);
  const __m128i r6 = Load(from + 6 * from_bytes), r7 = Load(from + 7 * from_bytes);
  const __m128i a0 = _mm_unpacklo_epi16(r0, r1), a1 = _mm_unpackhi_epi16(r0, r1);
  const __m128i a2 = _mm_unpacklo_epi16(r2, r3), a3 = _mm_unpackhi_epi16(r2, r3);
  const __m128i a4 = _mm_unpacklo_epi16(r4, r5), a5 = _mm_unpackhi_epi16(r4, r5);
  const __m128i a6 = _mm_unpacklo_epi16(r6, r7), a7 = _mm_unpackhi_epi16(r6, r7);
  const __m128i b0 = _mm_unpacklo_epi32(a0, a2), b1 = _mm_unpackhi_epi32(a0, a2);
  const __m128i b2 = _mm_unpacklo_epi32(a1, a3), b3 = _mm_unpackhi_epi32(a1, a3);
  const __m128i b4 = _mm_unpacklo_epi32(a4, a6), b5 = _mm_unpackhi_epi32(a4, a6);
  const __m128i b6 = _mm_unpacklo_epi32(a5, a7), b7 = _mm_unpackhi_epi32(a5, a7);
  Store(to, _mm_unpacklo_epi64(b0, b4));
  Store(to + to_bytes, _mm_unpackhi_epi64(b0, b4));
  Store(to + 2 * to_bytes, _mm_unpacklo_epi64(b1, b5));
  Store(to + 3 * to_bytes, _mm_unpackhi_epi64(b1, b5));
  Store(to + 4 * to_bytes, _mm_unpacklo_epi64(b2, b6));
  Store(to + 5 * to_bytes, _mm_unpackhi_epi64(b2, b6));
  Store(to + 6 * to_bytes, _mm_unpacklo_epi64(b3, b7));
  Store(to + 7 * to_bytes, _mm_unpackhi_epi64(b3, b7));
}

/// Four rows of four 4-byte elements.
void Tile4x4(const std::byte* from, std::int64_t from_bytes, std::byte* to, std::int64_t to_bytes) {
  const __m128i r0 = Load(from), r1 = Load(from + from_bytes);
  const __m128i r2 = Load(from + 2 * from_bytes), r3 = Load(from + 3 * from_bytes);
  const __m128i a0 = _mm_unpacklo_epi32(r0, r1), a1 = _mm_unpackhi_epi32(r0, r1);
  const __m128i a2 = _mm_unpacklo_epi32(r2, r3), a3 = _mm_unpackhi_epi32(r2, r3);
  Store(to, _mm_unpacklo_epi64(a0, a2));
  Store(to + to_bytes, _mm_unpackhi_epi64(a0, a2));
  Store(to + 2 * to_bytes, _mm_unpacklo_epi64(a1, a3));
  Store(to + 3 * to_bytes, _mm_unpackhi_epi64(a1, a3));
}

/// Whole register tiles first, then the ragged right and lower edges.
template <typename T, std::int64_t kTile, void (*kTileFn)(const std::byte*, std::int64_t, std::byte*, std::int64_t)>
void SseBlock(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride, std::int64_t rows,
              std::int64_t cols) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t whole_rows = rows - rows % kTile;
  const std::int64_t whole_cols = cols - cols % kTile;
  for (std::int64_t i = 0; i < whole_rows; i += kTile) {
    for (std::int64_t j = 0; j < whole_cols; j += kTile) {
      kTileFn(from + (j * from_stride + i) * kSize, from_stride * kSize, to + (i * to_stride + j) * kSize,
              to_stride * kSize);
    }
  }
  if (whole_cols < cols) {
    ScalarBlock<T>(from + whole_cols * from_stride * kSize, from_stride, to + whole_cols * kSize, to_stride, whole_rows,
                   cols - whole_cols);
  }
  if (whole_rows < rows) {
    ScalarBlock<T>(from + whole_rows * kSize, from_stride, to + whole_rows * to_stride * kSize, to_stride,
                   rows - whole_rows, cols);
  }
}

#endif

void OneBlock(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride, std::int64_t rows,
              std::int64_t cols, std::int64_t element) {
  switch (element) {
    case 1:
      return ScalarBlock<std::uint8_t>(from, from_stride, to, to_stride, rows, cols);
#if defined(__SSE2__)
    case 2:
      return SseBlock<std::uint16_t, 8, Tile8x8>(from, from_stride, to, to_stride, rows, cols);
    case 4:
      return SseBlock<std::uint32_t, 4, Tile4x4>(from, from_stride, to, to_stride, rows, cols);
#else
    case 2:
      return ScalarBlock<std::uint16_t>(from, from_stride, to, to_stride, rows, cols);
    case 4:
      return ScalarBlock<std::uint32_t>(from, from_stride, to, to_stride, rows, cols);
#endif
    case 8:
      return ScalarBlock<std::uint64_t>(from, from_stride, to, to_stride, rows, cols);
    default:
      CROSSDOCK_CHECK(false);
  }
}

}  // namespace

void Transpose2D(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
                 std::int64_t rows, std::int64_t cols, std::int64_t element) {
  for (std::int64_t i = 0; i < rows; i += kTile) {
    for (std::int64_t j = 0; j < cols; j += kTile) {
      OneBlock(from + (j * from_stride + i) * element, from_stride, to + (i * to_stride + j) * element, to_stride,
               std::min(kTile, rows - i), std::min(kTile, cols - j), element);
    }
  }
}

}  // namespace crossdock::kernels
