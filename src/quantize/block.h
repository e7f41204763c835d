// SPDX-License-Identifier: Apache-2.0
/// \file  Blockwise FP8 (E4M3) quantization: s = amax(block) / 448, q = round_to_nearest_even(w / s).
/// A block of zeros has s = 1 and q = 0; edge blocks use their real elements only. Not finite input is the caller's
/// guard. Scalar reference; the vectorised paths come with the FP8 export.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace crossdock::quantize {

/// `w`: rows x cols elements of `dtype` (BF16, F16, F32), row-major. `q`: rows x cols bytes. `s`: ceil(rows/br) x
/// ceil(cols/bc) floats, row-major.
void QuantizeBlocks(const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t block_rows,
                    std::int64_t block_cols, std::byte* q, float* s);

}  // namespace crossdock::quantize
