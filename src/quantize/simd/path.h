// SPDX-License-Identifier: Apache-2.0
/// \file  Path: one implementation of the two loops of FP8 quantization, for one set of instructions; and the choice among them.
/// Every path gives the bytes of the scalar one. What only one in a million groups needs (NaN, infinity) is left to that one.
/// Invariant: the files of the vector paths are compiled with flags that not every machine can run. So they define nothing
/// with external linkage but their Path, and use no inline function of a header but intrinsics: the linker might keep theirs
/// for everybody. Hence no std:: here.
/// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace crossdock::quantize::simd {

/// A piece of a row-major matrix.
struct Tile {
  const std::byte* w;
  DType dtype;          ///< BF16, F16 or F32
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;  ///< elements from row to row, of `w` and of the bytes alike
  /// Elements from those in work to some that come soon: their lines, and those of their bytes, are asked for while
  /// this tile is divided. Left to itself the hardware stops at the end of every row of the tile, and half the speed is lost.
  std::int64_t ahead = 0;
};

namespace {
/// A power of two whose reciprocal is a normal number: then w / scale and w * (1 / scale) are one real number, rounded once.
/// Each file has its own copy (see above).
[[maybe_unused]] bool HasExactReciprocal(float scale) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &scale, sizeof bits);
  const std::uint32_t exponent = bits >> 23U;
  return (bits & 0x7FFFFFU) == 0 && exponent >= 1 && exponent <= 253;
}
}  // namespace

struct Path {
  const char* name;
  /// The bits of max |w| as F32: those of infinity or above say that an element is infinite or NaN.
  std::uint32_t (*peak)(const Tile& tile);
  /// e4m3(clamp(w / scale, +-448)), with the quotient rounded to the tile's own type before when `narrow`.
  /// REQUIRES: finite elements; 0 < scale < infinity. The scalar path takes any element, and an infinite scale too.
  void (*quantize)(const Tile& tile, float scale, bool narrow, std::byte* q);
};

// NOLINTBEGIN(readability-identifier-naming): constants, though their values are elsewhere
extern const Path kScalar;
#if defined(CROSSDOCK_FP8_X86)
extern const Path kAvx2;    ///< AVX2 and F16C
extern const Path kAvx512;  ///< AVX-512 F, BW, VL, DQ
#endif
#if defined(CROSSDOCK_FP8_NEON)
extern const Path kNeon;  ///< part of every 64-bit ARM
#endif
// NOLINTEND(readability-identifier-naming)

/// Those that this machine can run, the fastest first, the scalar one last. Found out once.
[[nodiscard]] std::span<const Path* const> Runnable();

}  // namespace crossdock::quantize::simd
