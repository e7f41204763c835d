// SPDX-License-Identifier: Apache-2.0
/// \file  Evaluation by demand: a box of an expression as strided pieces of its leaves.
/// A *piece* pairs a region of one leaf with a region of the target, both described by the same nested loops:
/// element (i0, i1, ...) of the iteration space lies at target_origin + sum(i_k * target_step_k on target_axis_k)
/// and at leaf_origin + sum(i_k * leaf_step_k on leaf_axis_k). Each loop moves along exactly one axis of each
/// side, so a piece can be cut by a box of either side (ClipLeaf, ClipTarget) and a plan never holds runs.
/// Invariants: the pieces of one PullBack cover the box exactly once; loops are ordered outermost first by target
/// position (axis, then descending step) and have counts above 1 and positive target steps; on each axis of either
/// side a loop's |step| exceeds the span of the loops inside it (mixed radix). Fills (leaf < 0) are padding and are
/// zero, whatever their ops. Cost: proportional to the nodes and inputs that the box touches, not to the tree.
/// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "expr/expr.h"

namespace crossdock::expr {

struct Loop {
  std::int64_t count = 1;
  int target_axis = 0;
  std::int64_t target_step = 0;
  int leaf_axis = 0;           ///< unused for fills
  std::int64_t leaf_step = 0;  ///< negative under a reverse
};

/// An elementwise compute step, applied to each element after it is read, innermost node first.
struct ElementOp {
  Op op = Op::kCast;  ///< kCast, kScale, kOffset
  DType from = DType::kF32;
  DType to = DType::kF32;
  double factor = 1.0;
};

struct Piece {
  int leaf = -1;       ///< ordinal; -1 = fill with zeros
  Dims target_origin;  ///< in the coordinates of the root (not of the box)
  Dims leaf_origin;
  std::vector<Loop> loops;  ///< no loop: one element
  std::vector<ElementOp> ops;
  /// The node that makes these elements, when they are dequantized. The leaf side is then in the coordinates of this node, and
  /// `leaf` is the ordinal of its values. It belongs to the root, which must outlive the piece.
  const Node* dequantize = nullptr;
  [[nodiscard]] std::int64_t count() const;
};

/// The pieces of `box` of `root`. REQUIRES: the box fits the root's shape, and the root is no quantize
/// node (the planner takes those off the top first; see IsQuantize). An empty box has no pieces.
[[nodiscard]] std::vector<Piece> PullBack(const Expr& root, const Box& box);

/// The part of a piece whose leaf (target) side lies in `box`, as pieces. Any box; usually one piece or none.
/// REQUIRES of ClipLeaf and LeafBounds: the piece is no fill.
[[nodiscard]] std::vector<Piece> ClipLeaf(const Piece& piece, const Box& box);
[[nodiscard]] std::vector<Piece> ClipTarget(const Piece& piece, const Box& box);

/// The smallest boxes that hold the piece on either side.
[[nodiscard]] Box LeafBounds(const Piece& piece);
[[nodiscard]] Box TargetBounds(const Piece& piece);

/// A piece between two row-major buffers: what kernels execute. Offsets and strides in elements.
struct StridedCopy {
  std::int64_t from = 0;
  std::int64_t to = 0;
  struct Dim {
    std::int64_t count, from_stride, to_stride;
  };
  std::vector<Dim> dims;  ///< outermost first, merged where both sides are contiguous
};
/// `piece` read from a buffer that holds `leaf_box` row-major, written to one that holds `target_box` row-major.
/// REQUIRES: each box contains its side of the piece. For a fill `leaf_box` is ignored and `from` strides are 0.
[[nodiscard]] StridedCopy ToCopy(const Piece& piece, const Box& leaf_box, const Box& target_box);

}  // namespace crossdock::expr
