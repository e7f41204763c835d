// SPDX-License-Identifier: Apache-2.0
/// \file  Blockwise FP8 (E4M3) quantization: s = amax(block) / 448, q = round_to_nearest_even(w / s).
/// Arithmetic: F32 throughout, with IEEE divisions (never a multiplication by a reciprocal: it changes bytes); the
/// quotient is clamped to +-448, as a rounded s may leave it a hair above. -0 keeps its sign.
/// A block of zeros, or one so small that amax / 448 is 0 in F32, has s = 1; its q are 0. So no NaN is made of finite
/// input. Edge blocks use their real elements only. Not finite input is the caller's guard: nothing is refused here.
/// Scalar reference; the vectorised paths come with the FP8 export. Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace crossdock::quantize {

/// `w`: rows x cols elements of `dtype` (BF16, F16, F32), row-major. `q`: rows x cols bytes. `s`: ceil(rows/br) x
/// ceil(cols/bc) floats, row-major. REQUIRES: one of these dtypes, sizes >= 0, block sizes > 0.
void QuantizeBlocks(const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t block_rows,
                    std::int64_t block_cols, std::byte* q, float* s);

}  // namespace crossdock::quantize
