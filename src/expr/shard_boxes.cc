// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "expr/expr.h"
#include "expr/pull_back.h"
#include "expr/walk.h"

namespace crossdock::expr {
namespace {

/// The target side of a piece as boxes: loops that are dense in their axis stay, the others are written out.
void AppendTargetBoxes(const Piece& piece, std::vector<Box>& out) {
  Box box{piece.target_origin, Dims::Filled(piece.target_origin.size(), 1)};
  std::vector<Loop> strided;
  for (auto l = piece.loops.rbegin(); l != piece.loops.rend(); ++l) {
    std::int64_t& size = box.sizes[static_cast<std::size_t>(l->target_axis)];
    if (l->target_step == size) {
      size *= l->count;
    } else {
      strided.push_back(*l);
    }
  }
  std::vector<Box> boxes{box};
  for (const Loop& l : strided) {
    std::vector<Box> next;
    for (const Box& b : boxes) {
      for (std::int64_t i = 0; i < l.count; ++i) {
        next.push_back(b);
        next.back().offsets[static_cast<std::size_t>(l.target_axis)] += i * l.target_step;
      }
    }
    boxes = std::move(next);
  }
  out.insert(out.end(), boxes.begin(), boxes.end());
}

Result<Box> RankPart(const Node& marked, int size, int rank) {
  CROSSDOCK_CHECK(marked.shard_axis.has_value());
  Box box = Box::Whole(marked.shape);
  const auto axis = static_cast<std::size_t>(*marked.shard_axis);
  const std::int64_t extent = marked.shape[axis];
  if (extent % size != 0) {
    return MakeError(ErrorCode::kUsage, "the tensor-parallel size does not divide a tensor")
        .WithExpected("axis " + std::to_string(axis) + " of " + ToString(marked.shape) + " divisible by " +
                      std::to_string(size))
        .WithFound(std::to_string(extent))
        .WithHint("choose a tensor-parallel size that divides " + std::to_string(extent));
  }
  box.sizes[axis] = extent / size;
  box.offsets[axis] = rank * box.sizes[axis];
  return box;
}

/// Boxes of the quantized tensor as boxes of its scales.
Result<std::vector<Box>> ScaleBoxes(const Node& scales, std::vector<Box> boxes) {
  if (scales.fp8().whole) return std::vector<Box>{Box::Whole(scales.shape)};  // one scale, which every rank needs
  const Dims block{scales.fp8().block.rows, scales.fp8().block.cols};
  for (Box& box : boxes) {
    for (std::size_t a = 0; a < block.size(); ++a) {
      const std::int64_t end = box.offsets[a] + box.sizes[a];
      const bool edge = end == scales.inputs[0]->shape[a];
      if (box.offsets[a] % block[a] != 0 || (end % block[a] != 0 && !edge)) {
        return MakeError(ErrorCode::kUsage, "a tensor-parallel cut falls inside a quantization block")
            .WithExpected("multiples of " + std::to_string(block[a]))
            .WithFound(ToString(box));
      }
      box.offsets[a] /= block[a];
      box.sizes[a] = (edge ? scales.shape[a] : end / block[a]) - box.offsets[a];
    }
  }
  return boxes;
}

}  // namespace

Result<std::vector<Box>> ShardBoxes(const Expr& root, int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size) {
    return MakeError(ErrorCode::kUsage, "a rank is outside its parallel group")
        .WithExpected("0 to " + std::to_string(size - 1))
        .WithFound(std::to_string(rank));
  }
  if (IsQuantize(root) && !root->shard_axis) {
    CROSSDOCK_ASSIGN_OR_RETURN(std::vector<Box> boxes, ShardBoxes(root->inputs[0], size, rank));
    if (root->op == Op::kQuantizeValues) return boxes;
    return ScaleBoxes(*root, std::move(boxes));
  }
  Walk walk(Walk::End::kMarks);
  walk.Run(root, Box::Whole(root->shape));
  if (walk.marks().empty()) return std::vector<Box>{Box::Whole(root->shape)};
  std::vector<Box> out;
  for (const Piece& piece : walk.pieces()) {
    if (piece.leaf < 0) {
      AppendTargetBoxes(piece, out);
      continue;
    }
    const Node& marked = *walk.marks()[static_cast<std::size_t>(piece.leaf)];
    CROSSDOCK_ASSIGN_OR_RETURN(const Box part, RankPart(marked, size, rank));
    for (const Piece& held : ClipLeaf(piece, part)) AppendTargetBoxes(held, out);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace crossdock::expr
