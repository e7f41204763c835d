// SPDX-License-Identifier: Apache-2.0
/// \file  Dequantization of a tile: 8-bit floats or MXFP4 with their scales to BF16, F16 or F32.
/// Arithmetic: w = round(float(q) * float(s)): both are widened to F32 exactly, multiplied there, and the product is
/// rounded once to the wanted type, to nearest even. These are the bits of torch's `(q.float() * s.float()).to(dtype)`, which
/// transformers uses for FP8, and of its convert_moe_packed_tensors for MXFP4. (A product with a BF16 or power-of-two
/// scale is exact in F32, so that libraries that multiply in BF16 get the same.) Denormals are kept.
/// What is no number becomes the one quiet NaN without a sign. A finite value under a finite scale may become infinite in the wanted type: that is counted.
/// The U8 and E8M0 exponents mean 2^(e - 127). 255 is NaN as F8_E8M0; as U8 it is 2^128, infinite, as torch has it.
/// Threads: pure. The `Reference` functions go element by element and are what the others are tested against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace crossdock::quantize {

/// Which elements, and which scale each has: element (b, r, c) has the scale number
/// b * scale_batch + (first_row + r) / block_rows * scale_cols + (first_col + c) / block_cols.
/// `values` are batches x rows x cols bytes; of MXFP4 rows of scale_cols * 16 bytes, the row's first element being nibble
/// `first_col` (low nibble first), block_rows 1, block_cols 32.
struct Tile {
  std::int64_t batches = 1, rows = 1, cols = 1;
  std::int64_t first_row = 0, first_col = 0;  ///< below block_rows, block_cols
  std::int64_t block_rows = 1, block_cols = 1;
  std::int64_t scale_cols = 1, scale_batch = 0;
};

struct Stored {
  const std::byte* values;
  DType type;               ///< F8_E4M3 or F8_E5M2; U8: MXFP4
  const std::byte* scales;
  DType scale_type;         ///< F32, BF16, F16, F8_E8M0 or U8
};

/// Fills `out` with batches x rows x cols elements of `to`, row-major. Returns how many finite values became infinite.
[[nodiscard]] std::int64_t Dequantize(const Stored& from, const Tile& tile, std::byte* out, DType to);
[[nodiscard]] std::int64_t DequantizeReference(const Stored& from, const Tile& tile, std::byte* out, DType to);

}  // namespace crossdock::quantize
