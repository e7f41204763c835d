// SPDX-License-Identifier: Apache-2.0
/// \file  Read boxes: the pieces that a task needs from one stored chunk, gathered into boxes worth one read each.
/// Every byte is to be read about once: a box may hold at most one byte in 64 that nobody asked for. All pieces share
/// one box where that holds (query, key and value rows of one fused chunk); else pieces with gaps are taken apart
/// along the loop that makes the gap and joined again with what lies beside them. Where that would mean many runs of
/// less than 4 KiB, the gaps are read through: a system call costs more than the bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "expr/pull_back.h"
#include "tensor/box.h"

namespace crossdock::plan {

struct ReadBox {
  Box box;                          ///< in the leaf's coordinates
  std::vector<expr::Piece> pieces;  ///< whose leaf side lies in the box
};

/// REQUIRES: every piece lies in `chunk`. The order of the answer is that of the boxes' first elements.
[[nodiscard]] std::vector<ReadBox> MakeReadBoxes(std::vector<expr::Piece> pieces, const Box& chunk,
                                                 std::int64_t element);

/// How many contiguous runs a box is in a row-major chunk that contains it.
[[nodiscard]] std::int64_t RunsIn(const Box& box, const Box& chunk);
/// How many runs of a row-major chunk a piece takes that lies in it, `bounds` being its LeafBounds.
[[nodiscard]] std::int64_t RunsOfPiece(const expr::Piece& piece, const Box& bounds, const Box& chunk);

}  // namespace crossdock::plan
