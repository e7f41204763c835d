// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include <fmt/format.h>

#include "expr/expr.h"

namespace crossdock::expr {
namespace {

/// A concat prints this many inputs in full; a stack of layers says the same thing a hundred times.
constexpr std::size_t kShownInputs = 4;

std::string DescribeConcat(const Node& node) {
  std::string out = "concat(";
  const std::size_t n = node.inputs.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (i != 0) out += ", ";
    if (n > kShownInputs && i == kShownInputs - 1) {
      out += fmt::format("{} more, ", n - kShownInputs);
      i = n - 1;
    }
    out += Describe(node.inputs[i]);
  }
  return out + fmt::format("; axis {})", static_cast<int>(node.axis));
}

std::string Over(std::string_view operation, const Node& node) {
  return fmt::format("{}({})", operation, Describe(node.inputs[0]));
}

/// "[128x128]", "[1x4096, ue8m0]", "[tensor, relax]".
std::string DescribeFp8(const Fp8Format& format) {
  std::string text = format.whole ? "[tensor" : fmt::format("[{}x{}", format.block.rows, format.block.cols);
  if (format.scales == ScaleFormat::kUe8m0) text += ", ue8m0";
  if (format.arithmetic == Arithmetic::kRelax) text += ", relax";
  return text + "]";
}

std::string DescribeNode(const Node& node) {
  switch (node.op) {
    case Op::kLeaf:
      return std::to_string(node.leaf);
    case Op::kReshape:
      return Over("reshape" + ToString(node.shape), node);
    case Op::kTranspose:
      return Over(fmt::format("transpose[{}]", fmt::join(node.axes(), ", ")), node);
    case Op::kReverse:
      return Over(fmt::format("reverse[{}]", static_cast<int>(node.axis)), node);
    case Op::kConcat:
      return DescribeConcat(node);
    case Op::kSlice:
      return Over("slice" + ToString(Box{node.offsets(), node.shape}), node);
    case Op::kPad:
      return Over("pad" + ToString(node.shape), node);
    case Op::kCast:
      return Over(fmt::format("cast[{}]", DTypeName(node.dtype)), node);
    case Op::kScale:
      return Over(fmt::format("scale[{}]", node.factor()), node);
    case Op::kOffset:
      return Over(fmt::format("offset[{}]", node.factor()), node);
    case Op::kQuantizeValues:
      return Over("quantize" + DescribeFp8(node.fp8()), node);
    case Op::kQuantizeScales:
      return Over("quantize_scales" + DescribeFp8(node.fp8()), node);
    case Op::kDequantize:
      return fmt::format("dequantize[{}x{}]({}, {})", node.block().rows, node.block().cols, Describe(node.inputs[0]), Describe(node.inputs[1]));
    case Op::kDequantizeMxfp4:
      return fmt::format("dequantize[mxfp4]({}, {})", Describe(node.inputs[0]), Describe(node.inputs[1]));
  }
  return {};
}

}  // namespace

std::string Describe(const Expr& root) {
  std::string text = DescribeNode(*root);
  const std::optional<int> axis = root->shard_axis;
  return axis ? fmt::format("shard[{}]({})", *axis, text) : text;
}

}  // namespace crossdock::expr
