// SPDX-License-Identifier: Apache-2.0
// Functions from trees to trees, but for Simplify.
#include <algorithm>
#include <string>
#include <utility>

#include "expr/dequantize.h"
#include "expr/expr.h"
#include "expr/lossless_cast.h"
#include "expr/rebuild.h"

namespace crossdock::expr {
namespace {

void CollectLeaves(const Expr& root, std::vector<int>& out) {
  if (root->op == Op::kLeaf) out.push_back(root->leaf);
  for (const Expr& in : root->inputs) CollectLeaves(in, out);
}

/// The node as it applies to a slot other than param.
Result<Expr> NodeForSlot(const Node& node, std::vector<Expr> inputs, Slot slot) {
  const bool moment = slot != Slot::kMaster;
  switch (node.op) {
    case Op::kCast:
      return std::move(inputs[0]);
    case Op::kScale:
      if (slot == Slot::kAdamNu) return Scale(std::move(inputs[0]), 1.0 / (node.factor() * node.factor()));
      return Scale(std::move(inputs[0]), moment ? 1.0 / node.factor() : node.factor());
    case Op::kOffset:
      if (moment) return std::move(inputs[0]);
      return Offset(std::move(inputs[0]), node.factor());
    case Op::kQuantizeValues:
    case Op::kQuantizeScales:
      return MakeError(ErrorCode::kUnsupported, "only params are quantized")
          .WithFound("slot " + std::string(SlotName(slot)));
    case Op::kDequantize:
    case Op::kDequantizeMxfp4:
      return MakeError(ErrorCode::kUnsupported, "only params are stored quantized")
          .WithFound("slot " + std::string(SlotName(slot)));
    default:
      return Rebuild(node, std::move(inputs));
  }
}

}  // namespace

Result<Expr> Rebuild(const Node& node, std::vector<Expr> inputs) {
  CROSSDOCK_CHECK(node.op != Op::kLeaf && inputs.size() == node.inputs.size());
  Result<Expr> made = [&]() -> Result<Expr> {
    switch (node.op) {
      case Op::kReshape:
        return Reshape(std::move(inputs[0]), node.shape);
      case Op::kTranspose:
        return Transpose(std::move(inputs[0]), node.axes());
      case Op::kReverse:
        return Reverse(std::move(inputs[0]), node.axis);
      case Op::kConcat:
        return Concat(std::move(inputs), node.axis);
      case Op::kSlice:
        return Slice(std::move(inputs[0]), Box{node.offsets(), node.shape});
      case Op::kPad:
        return Pad(std::move(inputs[0]), node.offsets(), node.shape);
      case Op::kCast:
        return Cast(std::move(inputs[0]), node.dtype);
      case Op::kScale:
        return Scale(std::move(inputs[0]), node.factor());
      case Op::kOffset:
        return Offset(std::move(inputs[0]), node.factor());
      case Op::kQuantizeValues:
        return QuantizeValues(std::move(inputs[0]), node.fp8());
      case Op::kQuantizeScales:
        return QuantizeScales(std::move(inputs[0]), node.fp8());
      case Op::kDequantize:
        return Dequantize(std::move(inputs[0]), std::move(inputs[1]), node.block(), node.dtype);
      case Op::kDequantizeMxfp4:
        return DequantizeMxfp4(std::move(inputs[0]), std::move(inputs[1]), node.dtype);
      case Op::kLeaf:
        break;
    }
    return std::move(inputs[0]);
  }();
  CROSSDOCK_ASSIGN_OR_RETURN(Expr out, std::move(made));
  return WithMarkOf(node, std::move(out));
}

Expr WithMarkOf(const Node& from, Expr to) {
  if (!from.shard_axis || to->shard_axis == from.shard_axis) return to;
  return Shard(to, *from.shard_axis);
}

std::vector<int> LeafOrdinals(const Expr& root) {
  std::vector<int> out;
  CollectLeaves(root, out);
  return out;
}

Result<Expr> Substitute(const Expr& root, const std::function<Result<Expr>(int)>& make) {
  if (root->op == Op::kLeaf) {
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, make(root->leaf));
    if (made->shape != root->shape) {
      return MakeError(ErrorCode::kCorrupt, "a tensor has not the shape that the rule expects")
          .WithExpected(ToString(root->shape))
          .WithFound(ToString(made->shape));
    }
    return WithMarkOf(*root, std::move(made));
  }
  std::vector<Expr> inputs;
  inputs.reserve(root->inputs.size());
  for (const Expr& in : root->inputs) {
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, Substitute(in, make));
    inputs.push_back(std::move(made));
  }
  return Rebuild(*root, std::move(inputs));
}

Result<Expr> ForSlot(const Expr& root, Slot slot) {
  if (slot == Slot::kParam || root->op == Op::kLeaf) return root;
  std::vector<Expr> inputs;
  inputs.reserve(root->inputs.size());
  for (const Expr& in : root->inputs) {
    CROSSDOCK_ASSIGN_OR_RETURN(Expr made, ForSlot(in, slot));
    inputs.push_back(std::move(made));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(Expr made, NodeForSlot(*root, std::move(inputs), slot));
  return WithMarkOf(*root, std::move(made));
}

bool IsInexact(const Expr& root) {
  switch (root->op) {
    case Op::kScale:
    case Op::kOffset:
    case Op::kQuantizeValues:
    case Op::kQuantizeScales:
      return true;
    case Op::kCast:
      if (!IsLosslessCast(root->inputs[0]->dtype, root->dtype)) return true;
      break;
    default:
      break;
  }
  for (const Expr& in : root->inputs) {
    if (IsInexact(in)) return true;
  }
  return false;
}

bool HasArithmetic(const Expr& root) {
  if (root->op == Op::kScale || root->op == Op::kOffset) return true;
  return std::any_of(root->inputs.begin(), root->inputs.end(), [](const Expr& in) { return HasArithmetic(in); });
}

bool RoundsValues(const Expr& root) {
  const auto narrow = [](DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; };
  const auto wide_sum = [](const Expr& e) { return e->op == Op::kOffset && e->dtype == DType::kF32; };
  if (root->op == Op::kScale) return true;
  if (root->op == Op::kOffset) {
    const Expr& in = root->inputs[0];
    return !wide_sum(root) || in->op != Op::kCast || !narrow(in->inputs[0]->dtype) || RoundsValues(in);
  }
  if (root->op == Op::kCast && narrow(root->dtype) && wide_sum(root->inputs[0])) return RoundsValues(root->inputs[0]->inputs[0]);
  return std::any_of(root->inputs.begin(), root->inputs.end(), [](const Expr& in) { return RoundsValues(in); });
}

}  // namespace crossdock::expr
