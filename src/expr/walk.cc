// SPDX-License-Identifier: Apache-2.0
#include "expr/walk.h"

#include <algorithm>
#include <utility>

namespace crossdock::expr {

void Walk::Run(const Expr& root, const Box& box) {
  CROSSDOCK_CHECK(box.FitsIn(root->shape));
  if (!box.empty()) Visit(*root, RegionOfBox(box));
}

void Walk::Visit(const Node& node, Region region) {
  if (end_ == End::kMarks && node.shard_axis) {
    marks_.push_back(&node);
    return Emit(static_cast<int>(marks_.size() - 1), std::move(region));
  }
  switch (node.op) {
    case Op::kLeaf:
      if (end_ == End::kMarks) return EmitFill(std::move(region));
      return Emit(node.leaf, std::move(region));
    case Op::kReshape:
      for (Region& r : MoveThroughReshape(node.shape, node.inputs[0]->shape, std::move(region))) {
        Visit(*node.inputs[0], std::move(r));
      }
      return;
    case Op::kTranspose:
      MoveThroughTranspose(node.axes(), region);
      return Visit(*node.inputs[0], std::move(region));
    case Op::kReverse:
      MoveThroughReverse(node.axis, node.shape[static_cast<std::size_t>(node.axis)], region);
      return Visit(*node.inputs[0], std::move(region));
    case Op::kConcat:
      return VisitConcat(node, std::move(region));
    case Op::kSlice:
      for (std::size_t a = 0; a < node.shape.size(); ++a) region.offsets[a] += node.offsets()[a];
      return Visit(*node.inputs[0], std::move(region));
    case Op::kPad:
      return VisitPad(node, std::move(region));
    case Op::kCast:
    case Op::kScale:
    case Op::kOffset:
      return VisitElementwise(node, std::move(region));
    case Op::kDequantize:
    case Op::kDequantizeMxfp4:
      if (end_ == End::kMarks) return EmitFill(std::move(region));
      return Emit(node.inputs[0]->leaf, std::move(region), &node);
    case Op::kQuantizeValues:
    case Op::kQuantizeScales:
      break;
  }
  CROSSDOCK_CHECK(node.op != Op::kQuantizeValues && node.op != Op::kQuantizeScales);
}

void Walk::VisitConcat(const Node& node, Region region) {
  const auto axis = static_cast<std::size_t>(node.axis);
  const std::int64_t first = region.offsets[axis];
  const std::int64_t last = first + region.Span(node.axis);
  // Only the inputs that the region spans: a stack of a hundred layers costs the same as one of two.
  const auto begin = std::upper_bound(node.starts().begin(), node.starts().end(), first) - 1;
  std::vector<Region> parts;
  for (auto i = static_cast<std::size_t>(begin - node.starts().begin()); i < node.starts().size(); ++i) {
    const std::int64_t start = node.starts()[i];
    if (start > last) break;
    const std::int64_t end = start + node.inputs[i]->shape[axis];
    if (first >= start && last < end) {
      region.offsets[axis] -= start;
      return Visit(*node.inputs[i], std::move(region));
    }
    parts.clear();
    ClipAxis(region, node.axis, start, end, parts);
    for (Region& r : parts) {
      r.offsets[axis] -= start;
      Visit(*node.inputs[i], std::move(r));
    }
  }
}

void Walk::VisitPad(const Node& node, Region region) {
  const Node& in = *node.inputs[0];
  std::vector<Region> inside, outside;
  inside.push_back(std::move(region));
  for (std::size_t a = 0; a < node.shape.size(); ++a) {
    const int axis = static_cast<int>(a);
    const std::int64_t start = node.offsets()[a];
    const std::int64_t end = start + in.shape[a];
    std::vector<Region> next;
    for (const Region& r : inside) {
      ClipAxis(r, axis, 0, start, outside);
      ClipAxis(r, axis, end, node.shape[a], outside);
      ClipAxis(r, axis, start, end, next);
    }
    inside = std::move(next);
  }
  for (Region& r : inside) {
    for (std::size_t a = 0; a < node.shape.size(); ++a) r.offsets[a] -= node.offsets()[a];
    Visit(in, std::move(r));
  }
  for (Region& r : outside) EmitFill(std::move(r));
}

void Walk::VisitElementwise(const Node& node, Region region) {
  ops_.push_back({node.op, node.inputs[0]->dtype, node.dtype, node.factor()});
  Visit(*node.inputs[0], std::move(region));
  ops_.pop_back();
}

void Walk::Emit(int leaf, Region region, const Node* dequantize) {
  pieces_.push_back(ToPiece(std::move(region), leaf, {ops_.rbegin(), ops_.rend()}, dequantize));
}

void Walk::EmitFill(Region region) {
  region.offsets = Dims();
  for (RegionLoop& l : region.loops) {
    l.axis = 0;
    l.step = 0;
  }
  // Zero stays zero under every op (Offset refuses to stand over padding).
  pieces_.push_back(ToPiece(std::move(region), -1, {}));
}

}  // namespace crossdock::expr
