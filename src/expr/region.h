// SPDX-License-Identifier: Apache-2.0
/// \file  Region: what a walk from the root to a leaf carries: a set of elements of the current node, and for each the
/// element of the target that it makes. Private to this room.
/// Element (i0, i1, ...) of the loops is at offsets + sum(i_k * step_k on axis_k) of the node and at target_origin +
/// sum(i_k * target_step_k on target_axis_k) of the target.
/// Invariants: steps are positive (target steps may be negative); the loops of one axis stand in descending order of
/// their steps, each step exceeding the span of the loops after it (mixed radix), so a set has no element twice and
/// a cut of an axis meets at most two iterations of a loop in part; counts exceed 1. The same holds on the target side.
#pragma once

#include <cstdint>
#include <vector>

#include "expr/pull_back.h"

namespace crossdock::expr {

[[nodiscard]] inline std::size_t At(int axis) { return static_cast<std::size_t>(axis); }

struct RegionLoop {
  std::int64_t count = 1;
  int axis = 0;
  std::int64_t step = 0;
  int target_axis = 0;
  std::int64_t target_step = 0;
};

struct Region {
  Dims offsets;
  Dims target_origin;
  std::vector<RegionLoop> loops;

  /// Distance from the first to the last element on an axis.
  [[nodiscard]] std::int64_t Span(int axis) const;
};

[[nodiscard]] Region RegionOfBox(const Box& box);

/// Appends the parts of `region` with lo <= index < hi on `axis`. At most twice as many as the axis has loops, plus
/// one.
void ClipAxis(Region region, int axis, std::int64_t lo, std::int64_t hi, std::vector<Region>& out);
/// ClipAxis on all axes.
[[nodiscard]] std::vector<Region> ClipBox(Region region, const Box& box);

/// Between the output and the input of a node that keeps all elements.
void MoveThroughTranspose(const std::vector<int>& axes, Region& region);
void MoveThroughReverse(int axis, std::int64_t extent, Region& region);
/// A reshape may cut a region: no loop may carry across an axis of the input.
[[nodiscard]] std::vector<Region> MoveThroughReshape(const Shape& output, const Shape& input, Region region);

/// The region as a piece with the node as its leaf: target steps made positive, loops sorted and merged.
[[nodiscard]] Piece ToPiece(Region region, int leaf, std::vector<ElementOp> ops, const Node* dequantize = nullptr);

}  // namespace crossdock::expr
