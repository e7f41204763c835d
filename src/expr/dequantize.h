// SPDX-License-Identifier: Apache-2.0
/// \file  Dequantization: a floating tensor of two stored ones, w = value * scale, as a node that stands right over its two
/// leaves and below any movement. The two have other shapes than w, so a box of w is made of the boxes that cover it.
/// kDequantize: 8-bit floats with a scale for each block of the last two axes; axes before these have their own scales.
///   A row ("channel") and the whole tensor are blocks, too.
/// kDequantizeMxfp4: U8 blocks [.., groups, 16] of 32 E2M1 values, the low nibble first, and an exponent for each group
///   (U8 [.., groups]: 2^(e - 127)), as gpt-oss stores its experts (OCP MX 1.0). w has the shape [.., groups * 32].
/// Arithmetic: the product in F32, which holds it exactly but for scales with more digits than F32 has to spare, then
/// one rounding to the dtype of the node. There is no way back: the inverse is kUnsupported.
/// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "expr/expr.h"

namespace crossdock::expr {

/// `values`: F8_E4M3 or F8_E5M2 with two axes at least. `scales`: F32, BF16, F16, F8_E8M0 or U8 (an exponent as above), of
/// the shape of `values` with its last two axes divided by the block and rounded up; the last axis may be left out where it
/// is 1; or a single scale of any shape where one block holds the last two axes. `dtype`: F32, BF16 or F16.
/// Errors: kUnsupported for other dtypes, or inputs that are no leaves; kCorrupt for shapes that do not fit.
[[nodiscard]] Result<Expr> Dequantize(Expr values, Expr scales, BlockFormat block, DType dtype);
[[nodiscard]] Result<Expr> DequantizeMxfp4(Expr blocks, Expr scales, DType dtype);

[[nodiscard]] bool IsDequantize(const Node& node);
/// The dtype that the first dequantization below `root` gives; nothing when there is none.
[[nodiscard]] std::optional<DType> DequantizedType(const Expr& root);

/// The smallest boxes of the stored tensors that `box` of the node is made of. REQUIRES: IsDequantize(node), the box fits
/// it and is not empty.
struct StoredBoxes {
  Box values, scales;
};
[[nodiscard]] StoredBoxes StoredBoxesOf(const Node& node, const Box& box);

/// The box of the node whose values and scales both lie in these boxes of the stored tensors; nothing when it is empty.
/// REQUIRES: IsDequantize(node); of kDequantizeMxfp4 a box of whole groups (16 bytes).
[[nodiscard]] std::optional<Box> MadeOf(const Node& node, const Box& values, const Box& scales);

/// A box of the node as a kernel sees it: `batches` matrices of rows x cols, row-major, from values and scales that are
/// the row-major boxes of StoredBoxesOf. Element (b, r, c) has the scale
/// b * scale_batch + (first_row + r) / block_rows * scale_cols + (first_col + c) / block_cols.
/// Its value is the next byte of `values`; of MXFP4, in row r (of scale_cols * 16 bytes) the nibble first_col + c.
struct DequantizeTile {
  std::int64_t batches = 1, rows = 1, cols = 1;
  std::int64_t first_row = 0, first_col = 0;  ///< of the box, within its first block
  std::int64_t block_rows = 1, block_cols = 1;
  std::int64_t scale_cols = 1;                ///< scales in a row of the box
  std::int64_t scale_batch = 0;               ///< scales in a matrix; 0: one matrix of scales serves all
};
[[nodiscard]] DequantizeTile TileOf(const Node& node, const Box& box);

}  // namespace crossdock::expr
