// SPDX-License-Identifier: Apache-2.0
// Bottom-up: each function makes a node over inputs that are simple already, and the result is simple.
// But of a slice of a join only the inputs that it meets are walked: one of 10^4 experts would else cost as much as all.
// A marked node says where ranks cut, so it is never looked through; the mark of a rebuilt node stays on its result.
#include <algorithm>
#include <optional>
#include <utility>

#include "expr/expr.h"
#include "expr/lossless_cast.h"
#include "expr/rebuild.h"

namespace crossdock::expr {
namespace {

/// The builders were passed when the tree was made, and simplifying keeps shapes: a refusal is our own bug.
Expr Made(Result<Expr> result) { return std::move(result).value(); }

bool IsPlain(const Expr& e, Op op) { return e->op == op && !e->shard_axis; }

bool SameBesideInputs(const Node& a, const Node& b) {
  return a.op == b.op && a.dtype == b.dtype && a.axis == b.axis && a.shard_axis == b.shard_axis && a.leaf == b.leaf &&
         a.shape == b.shape && a.detail == b.detail;
}

bool Same(const Expr& a, const Expr& b) {
  if (a == b) return true;
  return SameBesideInputs(*a, *b) &&
         std::equal(a->inputs.begin(), a->inputs.end(), b->inputs.begin(), b->inputs.end(), Same);
}

Expr SimpleReshape(Expr in, const Shape& shape) {
  while (IsPlain(in, Op::kReshape)) in = in->inputs[0];
  if (in->shape == shape) return in;
  return Made(Reshape(std::move(in), shape));
}

Expr SimpleTranspose(Expr in, std::vector<int> axes) {
  if (IsPlain(in, Op::kTranspose)) {
    for (int& a : axes) a = in->axes()[static_cast<std::size_t>(a)];
    in = in->inputs[0];
  }
  if (std::is_sorted(axes.begin(), axes.end())) return in;
  return Made(Transpose(std::move(in), std::move(axes)));
}

Expr SimpleReverse(Expr in, int axis) {
  if (in->shape[static_cast<std::size_t>(axis)] <= 1) return in;
  if (IsPlain(in, Op::kReverse) && in->axis == axis) return in->inputs[0];
  return Made(Reverse(std::move(in), axis));
}

/// `b` continues `a` along `axis` within one and the same tensor: the box of both, else nothing.
std::optional<Box> Joined(const Expr& a, const Expr& b, std::size_t axis) {
  if (!IsPlain(a, Op::kSlice) || !IsPlain(b, Op::kSlice)) return std::nullopt;
  Box box{a->offsets(), a->shape};
  Dims next = a->offsets();
  next[axis] += a->shape[axis];
  if (b->offsets() != next || !Same(a->inputs[0], b->inputs[0])) return std::nullopt;
  box.sizes[axis] += b->shape[axis];
  return box;
}

Expr SimpleSlice(Expr in, Box box);

Expr SimpleConcat(const std::vector<Expr>& in, int axis) {
  const auto at = static_cast<std::size_t>(axis);
  std::vector<Expr> flat;
  const auto add = [&](const Expr& e) {
    if (!flat.empty()) {
      if (const auto box = Joined(flat.back(), e, at)) {
        // Kept as a slice even where it is whole by now: more may follow, and the last step below looks again.
        flat.back() = Made(Slice(flat.back()->inputs[0], *box));
        return;
      }
    }
    flat.push_back(e);
  };
  for (const Expr& e : in) {
    if (IsPlain(e, Op::kConcat) && e->axis == axis) {
      for (const Expr& inner : e->inputs) add(inner);
    } else {
      add(e);
    }
  }
  for (Expr& e : flat) {
    if (IsPlain(e, Op::kSlice)) e = SimpleSlice(e->inputs[0], Box{e->offsets(), e->shape});
  }
  if (flat.size() == 1) return flat.front();
  return Made(Concat(std::move(flat), axis));
}

Expr SliceOfConcat(const Node& concat, const Box& box) {
  const auto axis = static_cast<std::size_t>(concat.axis);
  const std::int64_t first = box.offsets[axis];
  const std::int64_t end = first + box.sizes[axis];
  std::vector<Expr> parts;
  const auto begin = std::upper_bound(concat.starts().begin(), concat.starts().end(), first) - 1;
  for (auto i = static_cast<std::size_t>(begin - concat.starts().begin()); i < concat.starts().size(); ++i) {
    const std::int64_t start = concat.starts()[i];
    if (start >= end) break;
    Box part = box;
    part.offsets[axis] = std::max(first, start) - start;
    part.sizes[axis] = std::min(end, start + concat.inputs[i]->shape[axis]) - start - part.offsets[axis];
    if (part.sizes[axis] > 0) parts.push_back(SimpleSlice(concat.inputs[i], part));
  }
  return SimpleConcat(parts, concat.axis);
}

/// The box of the reshape's input that `box` of its output is, where the two shapes differ in axes of size 1 only.
std::optional<Box> BoxBelow(const Node& reshape, const Box& box) {
  Box below = Box::Whole(reshape.inputs[0]->shape);
  std::size_t to = 0;
  for (std::size_t from = 0; from < box.rank(); ++from) {
    if (reshape.shape[from] == 1) continue;
    while (to < below.rank() && below.sizes[to] == 1) ++to;
    if (to == below.rank() || below.sizes[to] != reshape.shape[from]) return std::nullopt;
    below.offsets[to] = box.offsets[from];
    below.sizes[to] = box.sizes[from];
    ++to;
  }
  while (to < below.rank() && below.sizes[to] == 1) ++to;
  return to == below.rank() ? std::optional<Box>(std::move(below)) : std::nullopt;
}

/// Whether a tree is a join or a slice of one.
bool LeadsToJoin(const Expr& e) { return IsPlain(e, Op::kConcat) || (IsPlain(e, Op::kSlice) && IsPlain(e->inputs[0], Op::kConcat)); }

Expr SimpleSlice(Expr in, Box box) {
  if (box == Box::Whole(in->shape)) return in;
  if (IsPlain(in, Op::kSlice)) {
    for (std::size_t a = 0; a < box.rank(); ++a) box.offsets[a] += in->offsets()[a];
    return SimpleSlice(in->inputs[0], box);
  }
  if (IsPlain(in, Op::kConcat) && !box.empty()) return SliceOfConcat(*in, box);
  if (IsPlain(in, Op::kPad) && Box{in->offsets(), in->inputs[0]->shape}.Contains(box)) {
    for (std::size_t a = 0; a < box.rank(); ++a) box.offsets[a] -= in->offsets()[a];
    return SimpleSlice(in->inputs[0], box);
  }
  if (IsPlain(in, Op::kReshape) && !box.empty() && LeadsToJoin(in->inputs[0])) {
    if (const std::optional<Box> below = BoxBelow(*in, box)) return SimpleReshape(SimpleSlice(in->inputs[0], *below), box.sizes);
  }
  return Made(Slice(std::move(in), box));
}

Expr SimplePad(Expr in, Dims before, const Shape& shape) {
  if (in->shape == shape) return in;
  if (IsPlain(in, Op::kPad)) {
    for (std::size_t a = 0; a < before.size(); ++a) before[a] += in->offsets()[a];
    in = in->inputs[0];
  }
  return Made(Pad(std::move(in), before, shape));
}

Expr SimpleCast(Expr in, DType dtype) {
  while (IsPlain(in, Op::kCast) && IsLosslessCast(in->inputs[0]->dtype, in->dtype)) in = in->inputs[0];
  return Made(Cast(std::move(in), dtype));
}

Expr SimpleNode(const Node& node, std::vector<Expr> in) {
  switch (node.op) {
    case Op::kReshape:
      return SimpleReshape(std::move(in[0]), node.shape);
    case Op::kTranspose:
      return SimpleTranspose(std::move(in[0]), node.axes());
    case Op::kReverse:
      return SimpleReverse(std::move(in[0]), node.axis);
    case Op::kConcat:
      return SimpleConcat(in, node.axis);
    case Op::kSlice:
      return SimpleSlice(std::move(in[0]), Box{node.offsets(), node.shape});
    case Op::kPad:
      return SimplePad(std::move(in[0]), node.offsets(), node.shape);
    case Op::kCast:
      return SimpleCast(std::move(in[0]), node.dtype);
    default:
      return Made(Rebuild(node, std::move(in)));
  }
}

/// A slice on its way to a join below it: as a join of what it takes of the inputs that it meets, or one step nearer, past another slice
/// or axes of size 1. Null where it meets all inputs, or no join is there.
Expr Narrowed(const Node& slice) {
  if (slice.op != Op::kSlice || slice.shard_axis) return nullptr;
  const Box box{slice.offsets(), slice.shape};
  const Expr& in = slice.inputs[0];
  if (box.empty() || box == Box::Whole(in->shape)) return nullptr;
  if (IsPlain(in, Op::kSlice) && IsPlain(in->inputs[0], Op::kConcat)) {
    Box sum = box;
    for (std::size_t a = 0; a < sum.rank(); ++a) sum.offsets[a] += in->offsets()[a];
    return Made(Slice(in->inputs[0], sum));
  }
  if (IsPlain(in, Op::kReshape) && LeadsToJoin(in->inputs[0])) {
    const std::optional<Box> below = BoxBelow(*in, box);
    return below ? Made(Reshape(Made(Slice(in->inputs[0], *below)), slice.shape)) : nullptr;
  }
  if (!IsPlain(in, Op::kConcat)) return nullptr;
  const Node& concat = *in;
  const auto axis = static_cast<std::size_t>(concat.axis);
  const std::int64_t first = box.offsets[axis];
  const std::int64_t end = first + box.sizes[axis];
  const auto& starts = concat.starts();
  auto i = static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), first) - 1 - starts.begin());
  if (i == 0 && starts.back() < end) return nullptr;
  std::vector<Expr> parts;
  for (; i < starts.size() && starts[i] < end; ++i) {
    Box part = box;
    part.offsets[axis] = std::max(first, starts[i]) - starts[i];
    part.sizes[axis] = std::min(end, starts[i] + concat.inputs[i]->shape[axis]) - starts[i] - part.offsets[axis];
    if (part.sizes[axis] <= 0) continue;
    const bool whole = part == Box::Whole(concat.inputs[i]->shape);
    parts.push_back(whole ? concat.inputs[i] : Made(Slice(concat.inputs[i], part)));
  }
  return parts.size() == 1 ? parts.front() : Made(Concat(std::move(parts), concat.axis));
}

}  // namespace

Expr Simplify(const Expr& root) {
  if (root->op == Op::kLeaf) return root;
  if (const Expr narrowed = Narrowed(*root)) return Simplify(narrowed);
  std::vector<Expr> inputs;
  inputs.reserve(root->inputs.size());
  for (const Expr& in : root->inputs) inputs.push_back(Simplify(in));
  Expr simple = WithMarkOf(*root, SimpleNode(*root, std::move(inputs)));
  // What was simple already stays the node that it is: a plan would else hold every tree twice.
  const bool unchanged = SameBesideInputs(*simple, *root) && simple->inputs == root->inputs;
  return unchanged ? root : simple;
}

}  // namespace crossdock::expr
