// SPDX-License-Identifier: Apache-2.0
// The way back from a tree to its leaves, derived by walking from the root down.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "expr/expr.h"

namespace crossdock::expr {
namespace {

/// The value of input `which` of `node`, given the value of `node`.
Result<Expr> InvertNode(const Node& node, std::size_t which, Expr value) {
  const Expr& in = node.inputs[which];
  switch (node.op) {
    case Op::kReshape:
      return Reshape(std::move(value), in->shape);
    case Op::kTranspose: {
      std::vector<int> inverse(node.axes().size());
      for (std::size_t i = 0; i < node.axes().size(); ++i) {
        inverse[static_cast<std::size_t>(node.axes()[i])] = static_cast<int>(i);
      }
      return Transpose(std::move(value), std::move(inverse));
    }
    case Op::kReverse:
      return Reverse(std::move(value), node.axis);
    case Op::kConcat: {
      Box box = Box::Whole(in->shape);
      box.offsets[static_cast<std::size_t>(node.axis)] = node.starts()[which];
      return Slice(std::move(value), box);
    }
    case Op::kSlice:
      if (node.shape == in->shape) return value;
      return MakeError(ErrorCode::kUnsupported, "a slice that drops elements has no inverse")
          .WithExpected(ToString(in->shape))
          .WithFound(ToString(node.shape));
    case Op::kPad:
      return Slice(std::move(value), Box{node.offsets(), in->shape});
    case Op::kCast:
      return Cast(std::move(value), in->dtype);
    case Op::kScale:
      return Scale(std::move(value), 1.0 / node.factor());
    case Op::kOffset:
      return Offset(std::move(value), -node.factor());
    case Op::kQuantizeValues:
    case Op::kQuantizeScales:
      return MakeError(ErrorCode::kUnsupported, "quantization has no inverse");
    case Op::kDequantize:
    case Op::kDequantizeMxfp4:
      return MakeError(ErrorCode::kUnsupported, "dequantization has no inverse");
    case Op::kLeaf:
      break;
  }
  CROSSDOCK_CHECK(node.op != Op::kLeaf);
  return value;
}

/// What the tree holds of a leaf: a box of it, as an expression over the root's value.
struct Part {
  Box box;
  Expr value;
};
using Parts = std::map<int, std::vector<Part>>;

bool IsSliceOfLeaf(const Node& node) { return node.op == Op::kSlice && node.inputs[0]->op == Op::kLeaf; }

/// `only`: the leaf that is wanted, or nothing for all of them.
Status Descend(const Expr& node, const Expr& value, std::optional<int> only, Parts& parts) {
  if (node->op == Op::kLeaf || IsSliceOfLeaf(*node)) {
    const Node& leaf = node->op == Op::kLeaf ? *node : *node->inputs[0];
    if (only && leaf.leaf != *only) return OkStatus();
    Box box = node->op == Op::kLeaf ? Box::Whole(leaf.shape) : Box{node->offsets(), node->shape};
    parts[leaf.leaf].push_back({std::move(box), value});
    return OkStatus();
  }
  for (std::size_t which = 0; which < node->inputs.size(); ++which) {
    CROSSDOCK_ASSIGN_OR_RETURN(const Expr below, InvertNode(*node, which, value));
    CROSSDOCK_RETURN_IF_ERROR(Descend(node->inputs[which], below, only, parts));
  }
  return OkStatus();
}

Error UsedTwice(int leaf, std::size_t uses) {
  return MakeError(ErrorCode::kUnsupported, "a rule must use a tensor once to be inverted")
      .WithExpected("one use of input " + std::to_string(leaf) + ", or slices along one axis that make it up")
      .WithFound(std::to_string(uses));
}

/// The leaf again: its only part, or slices along one axis that follow each other.
Result<Expr> PutTogether(int leaf, const Shape& shape, std::vector<Part> parts) {
  if (parts.size() == 1 && parts[0].box == Box::Whole(shape)) return std::move(parts[0].value);
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.box.offsets < b.box.offsets; });
  std::size_t axis = 0;
  while (axis < shape.size() && parts[0].box.sizes[axis] == shape[axis]) ++axis;
  if (axis == shape.size()) return UsedTwice(leaf, parts.size());
  std::int64_t at = 0;
  std::vector<Expr> values;
  for (Part& part : parts) {
    Box expected = Box::Whole(shape);
    expected.offsets[axis] = at;
    expected.sizes[axis] = part.box.sizes[axis];
    if (part.box != expected) return UsedTwice(leaf, parts.size());
    at += part.box.sizes[axis];
    values.push_back(std::move(part.value));
  }
  if (at != shape[axis]) {
    return MakeError(ErrorCode::kUnsupported, "a slice that drops elements has no inverse").WithExpected(ToString(shape)).WithFound(std::to_string(at));
  }
  return Concat(std::move(values), static_cast<int>(axis));
}

/// The shapes of the leaves, as far as they are wanted.
void LeafShapes(const Expr& node, std::map<int, Shape>& shapes) {
  if (node->op == Op::kLeaf) shapes.emplace(node->leaf, node->shape);
  for (const Expr& in : node->inputs) LeafShapes(in, shapes);
}

}  // namespace

Result<Expr> Inverse(const Expr& root, int ordinal) {
  std::map<int, Shape> shapes;
  LeafShapes(root, shapes);
  Parts parts;
  CROSSDOCK_RETURN_IF_ERROR(Descend(root, Leaf(0, root->dtype, root->shape), ordinal, parts));
  if (!shapes.contains(ordinal)) return UsedTwice(ordinal, 0);
  return PutTogether(ordinal, shapes.at(ordinal), std::move(parts[ordinal]));
}

Result<std::map<int, Expr>> Inverses(const Expr& root) {
  std::map<int, Shape> shapes;
  LeafShapes(root, shapes);
  Parts parts;
  CROSSDOCK_RETURN_IF_ERROR(Descend(root, Leaf(0, root->dtype, root->shape), std::nullopt, parts));
  std::map<int, Expr> out;
  for (auto& [leaf, of] : parts) {
    CROSSDOCK_ASSIGN_OR_RETURN(Expr value, PutTogether(leaf, shapes.at(leaf), std::move(of)));
    out.emplace(leaf, std::move(value));
  }
  return out;
}

}  // namespace crossdock::expr
