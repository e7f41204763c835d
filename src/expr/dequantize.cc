// SPDX-License-Identifier: Apache-2.0
#include "expr/dequantize.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked_math.h"

namespace crossdock::expr {
namespace {

constexpr std::int64_t kGroup = 32;       ///< elements under one scale of MXFP4
constexpr std::int64_t kGroupBytes = 16;

Error Refusal(std::string expected, const Expr& found) {
  return MakeError(ErrorCode::kUnsupported, "these tensors cannot be dequantized")
      .WithExpected(std::move(expected))
      .WithFound(std::string(DTypeName(found->dtype)) + " " + ToString(found->shape));
}

Status CheckLeaves(const Expr& values, const Expr& scales, DType dtype) {
  CROSSDOCK_CHECK(values != nullptr && scales != nullptr);
  if (values->op != Op::kLeaf || scales->op != Op::kLeaf) {
    return MakeError(ErrorCode::kUnsupported, "only stored tensors can be dequantized").WithHint("dequantize before everything else");
  }
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, "a tensor cannot be dequantized to this type")
      .WithExpected("BF16, F16 or F32")
      .WithFound(std::string(DTypeName(dtype)));
}

bool IsScaleType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF8E8M0 || dtype == DType::kU8;
}

/// The shape of `values` with its last two axes in blocks.
Shape GridOf(const Shape& values, const BlockFormat& block) {
  Shape grid = values;
  const std::size_t rank = values.size();
  grid[rank - 2] = CeilDiv(values[rank - 2], block.rows);
  grid[rank - 1] = CeilDiv(values[rank - 1], block.cols);
  return grid;
}

bool IsSingle(const Shape& scales) {
  return std::all_of(scales.begin(), scales.end(), [](std::int64_t n) { return n == 1; });
}

std::shared_ptr<Node> NodeOf(Op op, Expr values, Expr scales, Shape shape, DType dtype) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->shape = std::move(shape);
  node->dtype = dtype;
  node->inputs = {std::move(values), std::move(scales)};
  return node;
}

std::int64_t ProductOf(const Dims& dims, std::size_t end) {
  std::int64_t n = 1;
  for (std::size_t a = 0; a < end; ++a) n *= dims[a];
  return n;
}

/// [begin, begin + size) in units of `unit`, outwards.
void CoverAxis(Box& box, std::size_t axis, std::int64_t unit) {
  const std::int64_t end = box.offsets[axis] + box.sizes[axis];
  box.offsets[axis] /= unit;
  box.sizes[axis] = CeilDiv(end, unit) - box.offsets[axis];
}

/// Units back to elements, cut off at the end of the tensor.
void SpreadAxis(Box& box, std::size_t axis, std::int64_t unit, std::int64_t extent) {
  const std::int64_t end = box.offsets[axis] + box.sizes[axis];
  box.offsets[axis] *= unit;
  box.sizes[axis] = std::min(end * unit, extent) - box.offsets[axis];
}

/// `box` in the blocks of the grid, one axis for each of the node's.
Box GridBox(const Node& node, Box box) {
  const std::size_t rank = box.rank();
  CoverAxis(box, rank - 2, node.block().rows);
  CoverAxis(box, rank - 1, node.block().cols);
  return box;
}

}  // namespace

Result<Expr> Dequantize(Expr values, Expr scales, BlockFormat block, DType dtype) {
  CROSSDOCK_RETURN_IF_ERROR(CheckLeaves(values, scales, dtype));
  const Shape shape = values->shape;
  if ((values->dtype != DType::kF8E4M3 && values->dtype != DType::kF8E5M2) || shape.size() < 2) {
    return Refusal("F8_E4M3 or F8_E5M2 with two axes or more", values);
  }
  if (!IsScaleType(scales->dtype)) return Refusal("scales of F32, BF16, F16, F8_E8M0 or U8", scales);
  if (block.rows <= 0 || block.cols <= 0) {
    return MakeError(ErrorCode::kUsage, "a quantization block has no extent")
        .WithFound(std::to_string(block.rows) + " x " + std::to_string(block.cols));
  }
  // A block may be said to be larger than the tensor; what is stored is the same.
  block.rows = std::min(block.rows, std::max<std::int64_t>(shape[shape.size() - 2], 1));
  block.cols = std::min(block.cols, std::max<std::int64_t>(shape.back(), 1));
  const Shape grid = GridOf(shape, block);
  Shape without_last = grid;
  without_last.erase(grid.size() - 1);
  const bool one_block = grid[grid.size() - 2] == 1 && grid.back() == 1;
  const bool fits = scales->shape == grid || (grid.back() == 1 && scales->shape == without_last) ||
                    (one_block && IsSingle(scales->shape));
  if (!fits) {
    return MakeError(ErrorCode::kCorrupt, "the scales have not the shape that belongs to the values")
        .WithExpected(ToString(grid) + " for " + ToString(shape) + " in blocks of " + std::to_string(block.rows) + " x " +
                      std::to_string(block.cols))
        .WithFound(ToString(scales->shape));
  }
  auto node = NodeOf(Op::kDequantize, std::move(values), std::move(scales), shape, dtype);
  node->detail = block;
  return Expr(std::move(node));
}

Result<Expr> DequantizeMxfp4(Expr blocks, Expr scales, DType dtype) {
  CROSSDOCK_RETURN_IF_ERROR(CheckLeaves(blocks, scales, dtype));
  Shape shape = blocks->shape;
  if (blocks->dtype != DType::kU8 || shape.size() < 2 || shape.back() != kGroupBytes) return Refusal("U8 blocks [.., groups, 16]", blocks);
  shape.erase(shape.size() - 1);
  if (scales->dtype != DType::kU8 && scales->dtype != DType::kF8E8M0) return Refusal("scales of U8 or F8_E8M0", scales);
  if (scales->shape != shape) {
    return MakeError(ErrorCode::kCorrupt, "the scales have not the shape that belongs to the blocks")
        .WithExpected(ToString(shape) + " for blocks " + ToString(blocks->shape))
        .WithFound(ToString(scales->shape));
  }
  const auto last = CheckedMul(shape.back(), kGroup);
  if (!last) return Refusal("fewer than 2^63 elements", blocks);
  shape[shape.size() - 1] = *last;
  CROSSDOCK_RETURN_IF_ERROR(ElementCount(shape));
  return Expr(NodeOf(Op::kDequantizeMxfp4, std::move(blocks), std::move(scales), shape, dtype));
}

bool IsDequantize(const Node& node) { return node.op == Op::kDequantize || node.op == Op::kDequantizeMxfp4; }

std::optional<DType> DequantizedType(const Expr& root) {
  if (IsDequantize(*root)) return root->dtype;
  for (const Expr& in : root->inputs) {
    if (const auto found = DequantizedType(in)) return found;
  }
  return std::nullopt;
}

StoredBoxes StoredBoxesOf(const Node& node, const Box& box) {
  const std::size_t rank = box.rank();
  if (node.op == Op::kDequantizeMxfp4) {
    StoredBoxes out{box, box};
    CoverAxis(out.scales, rank - 1, kGroup);
    out.values = out.scales;
    out.values.offsets.push_back(0);
    out.values.sizes.push_back(kGroupBytes);
    return out;
  }
  CROSSDOCK_CHECK(node.op == Op::kDequantize);
  const Shape& scales = node.inputs[1]->shape;
  StoredBoxes out{box, Box::Whole(scales)};
  if (IsSingle(scales)) return out;
  out.scales = GridBox(node, box);
  if (scales.size() < rank) {
    out.scales.offsets.erase(rank - 1);
    out.scales.sizes.erase(rank - 1);
  }
  return out;
}

std::optional<Box> MadeOf(const Node& node, const Box& values, const Box& scales) {
  const std::size_t rank = node.shape.size();
  if (node.op == Op::kDequantizeMxfp4) {
    CROSSDOCK_CHECK(values.sizes.back() == kGroupBytes);
    Box from_values = values;
    from_values.offsets.erase(rank);
    from_values.sizes.erase(rank);
    std::optional<Box> both = Intersect(from_values, scales);
    if (both) SpreadAxis(*both, rank - 1, kGroup, node.shape[rank - 1]);
    return both;
  }
  CROSSDOCK_CHECK(node.op == Op::kDequantize);
  if (IsSingle(node.inputs[1]->shape)) {
    if (values.empty() || scales.empty()) return std::nullopt;
    return values;
  }
  Box reach = scales;
  if (reach.rank() < rank) {
    reach.offsets.push_back(0);
    reach.sizes.push_back(1);
  }
  SpreadAxis(reach, rank - 2, node.block().rows, node.shape[rank - 2]);
  SpreadAxis(reach, rank - 1, node.block().cols, node.shape[rank - 1]);
  return Intersect(values, reach);
}

DequantizeTile TileOf(const Node& node, const Box& box) {
  const std::size_t rank = box.rank();
  const StoredBoxes stored = StoredBoxesOf(node, box);
  DequantizeTile tile;
  tile.cols = box.sizes[rank - 1];
  if (node.op == Op::kDequantizeMxfp4) {
    tile.rows = ProductOf(box.sizes, rank - 1);
    tile.first_col = box.offsets[rank - 1] % kGroup;
    tile.block_cols = kGroup;
    tile.scale_cols = stored.scales.sizes[rank - 1];
    return tile;
  }
  tile.batches = ProductOf(box.sizes, rank - 2);
  tile.rows = box.sizes[rank - 2];
  tile.first_row = box.offsets[rank - 2] % node.block().rows;
  tile.first_col = box.offsets[rank - 1] % node.block().cols;
  tile.block_rows = node.block().rows;
  tile.block_cols = node.block().cols;
  if (IsSingle(node.inputs[1]->shape)) return tile;
  const Box grid = GridBox(node, box);
  tile.scale_cols = grid.sizes[rank - 1];
  tile.scale_batch = grid.sizes[rank - 2] * grid.sizes[rank - 1];
  return tile;
}

}  // namespace crossdock::expr
