// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_stored.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"

namespace crossdock::dialects::hf {
namespace {

/// Codes and scales of one node on the way up, and the block in its orientation.
struct Pair {
  expr::Expr values, scales;
  expr::BlockFormat block;
  bool exponents = false;
};

std::optional<Pair> Of(const expr::Node& node);

/// `block` of [.., n, k] no larger than that.
expr::BlockFormat Clipped(const expr::BlockFormat& block, const Shape& shape) {
  const std::size_t rank = shape.size();
  return {std::min(block.rows, shape[rank - 2]), std::min(block.cols, shape[rank - 1])};
}

/// [.., ceil(n / R), ceil(k / C)].
Shape GridOf(Shape shape, const expr::BlockFormat& block) {
  const std::size_t rank = shape.size();
  shape[rank - 2] = CeilDiv(shape[rank - 2], block.rows);
  shape[rank - 1] = CeilDiv(shape[rank - 1], block.cols);
  return shape;
}

std::optional<Pair> Made(Result<expr::Expr> values, Result<expr::Expr> scales, const expr::BlockFormat& block, bool exponents) {
  if (!values || !scales) return std::nullopt;
  return Pair{*std::move(values), *std::move(scales), block, exponents};
}

std::optional<Pair> OfDequantize(const expr::Node& node) {
  const expr::Expr& values = node.inputs[0];
  const expr::Expr& scales = node.inputs[1];
  if (values->dtype != DType::kF8E4M3 || !IsFloating(scales->dtype) || CheckedCount(values->shape) == 0) return std::nullopt;
  const Shape grid = GridOf(node.shape, node.block());
  if (CheckedCount(grid) != CheckedCount(scales->shape)) return std::nullopt;  // one scale for several matrices
  Result<expr::Expr> shaped = expr::Reshape(scales, grid);
  if (!shaped) return std::nullopt;
  return Made(values, expr::Cast(*std::move(shaped), DType::kF32), node.block(), scales->dtype == DType::kF8E8M0);
}

std::optional<Pair> OfSlice(const expr::Node& node, const Pair& in) {
  const Shape& from = node.inputs[0]->shape;
  const std::size_t rank = from.size();
  Box cut{node.offsets(), node.shape};
  for (std::size_t axis = rank - 2; axis < rank; ++axis) {
    const std::int64_t block = axis == rank - 2 ? in.block.rows : in.block.cols;
    const std::int64_t end = cut.offsets[axis] + cut.sizes[axis];
    if (cut.offsets[axis] % block != 0 || (end % block != 0 && end != from[axis])) return std::nullopt;
    cut.offsets[axis] /= block;
    cut.sizes[axis] = CeilDiv(end, block) - cut.offsets[axis];
  }
  return Made(expr::Slice(in.values, Box{node.offsets(), node.shape}), expr::Slice(in.scales, cut), in.block, in.exponents);
}

std::optional<Pair> OfReshape(const expr::Node& node, const Pair& in) {
  const Shape& from = node.inputs[0]->shape;
  const Shape& to = node.shape;
  if (from.size() < 2 || to.size() < 2) return std::nullopt;
  const bool same = from[from.size() - 2] == to[to.size() - 2] && from.back() == to.back();
  if (!same) return std::nullopt;
  return Made(expr::Reshape(in.values, to), expr::Reshape(in.scales, GridOf(to, in.block)), in.block, in.exponents);
}

/// Only the last two axes may change places.
std::optional<Pair> OfTranspose(const expr::Node& node, const Pair& in) {
  const std::vector<int>& axes = node.axes();
  const std::size_t rank = axes.size();
  for (std::size_t a = 0; a + 2 < rank; ++a) {
    if (axes[a] != static_cast<int>(a)) return std::nullopt;
  }
  const bool turned = rank >= 2 && axes[rank - 1] == static_cast<int>(rank) - 2;
  const expr::BlockFormat block = turned ? expr::BlockFormat{in.block.cols, in.block.rows} : in.block;
  return Made(expr::Transpose(in.values, axes), expr::Transpose(in.scales, axes), block, in.exponents);
}

std::optional<Pair> Of(const expr::Node& node) {
  if (node.op == expr::Op::kDequantize) return OfDequantize(node);
  const bool passes = node.op == expr::Op::kCast || node.op == expr::Op::kSlice || node.op == expr::Op::kReshape || node.op == expr::Op::kTranspose;
  if (!passes) return std::nullopt;
  std::optional<Pair> in = Of(*node.inputs[0]);
  if (!in || node.op == expr::Op::kCast) return in;
  if (node.op == expr::Op::kSlice) return OfSlice(node, *in);
  return node.op == expr::Op::kReshape ? OfReshape(node, *in) : OfTranspose(node, *in);
}

}  // namespace

std::optional<StoredFp8> AsStored(const expr::Expr& weight, const expr::BlockFormat& block) {
  if (weight->shape.size() != 2) return std::nullopt;
  const std::optional<Pair> pair = Of(*weight);
  if (!pair || !(Clipped(pair->block, weight->shape) == Clipped(block, weight->shape))) return std::nullopt;
  return StoredFp8{expr::Simplify(pair->values), expr::Simplify(pair->scales), pair->exponents};
}

}  // namespace crossdock::dialects::hf
