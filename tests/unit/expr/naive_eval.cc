// SPDX-License-Identifier: Apache-2.0
#include "unit/expr/naive_eval.h"

#include <cstdlib>
#include <sstream>

#include <gtest/gtest.h>

namespace crossdock::expr {
namespace {

std::size_t At(int axis) { return static_cast<std::size_t>(axis); }

/// The element of the input, and which input, that `index` of `node` shows; nothing for padding.
struct Origin {
  std::size_t input = 0;
  Dims index;
  bool padding = false;
};

Origin OriginOf(const Node& node, const Dims& index) {
  Origin o{0, index, false};
  switch (node.op) {
    case Op::kTranspose:
      for (std::size_t i = 0; i < node.axes().size(); ++i) o.index[At(node.axes()[i])] = index[i];
      break;
    case Op::kReverse:
      o.index[At(node.axis)] = node.shape[At(node.axis)] - 1 - index[At(node.axis)];
      break;
    case Op::kConcat:
      while (o.index[At(node.axis)] >= node.inputs[o.input]->shape[At(node.axis)]) {
        o.index[At(node.axis)] -= node.inputs[o.input]->shape[At(node.axis)];
        ++o.input;
      }
      break;
    case Op::kSlice:
      for (std::size_t a = 0; a < index.size(); ++a) o.index[a] += node.offsets()[a];
      break;
    case Op::kPad:
      for (std::size_t a = 0; a < index.size(); ++a) {
        o.index[a] -= node.offsets()[a];
        if (o.index[a] < 0 || o.index[a] >= node.inputs[0]->shape[a]) o.padding = true;
      }
      break;
    default:
      break;
  }
  return o;
}

std::string Number(double v) {
  std::ostringstream out;
  out << v;
  return out.str();
}

std::vector<Cell> Walk(const Expr& e, int size) {
  std::vector<std::vector<Cell>> in;
  for (const Expr& i : e->inputs) in.push_back(Walk(i, size));
  std::vector<Cell> out;
  ForEachIndex(e->shape, [&](const Dims& index) {
    const auto row = static_cast<std::size_t>(RowMajor(e->shape, index));
    if (e->op == Op::kLeaf) {
      out.push_back({e->leaf, static_cast<std::int64_t>(row), {}, -1});
    } else if (e->op == Op::kReshape) {
      out.push_back(in[0][row]);
    } else {
      const Origin o = OriginOf(*e, index);
      out.push_back(o.padding ? Cell{}
                              : in[o.input][static_cast<std::size_t>(RowMajor(e->inputs[o.input]->shape, o.index))]);
    }
    if (e->op == Op::kCast || e->op == Op::kScale || e->op == Op::kOffset) {
      out.back().ops.push_back(SpellOp({e->op, e->inputs[0]->dtype, e->dtype, e->factor()}));
    }
    if (e->shard_axis) {
      const std::int64_t extent = e->shape[At(*e->shard_axis)];
      const std::int64_t part = extent / size;
      out.back().owner = extent % size != 0 ? kNoOwner : static_cast<int>(index[At(*e->shard_axis)] / part);
    }
  });
  return out;
}

void CheckInvariants(const Piece& piece) {
  for (std::size_t i = 0; i < piece.loops.size(); ++i) {
    const Loop& l = piece.loops[i];
    EXPECT_GT(l.count, 1);
    EXPECT_GT(l.target_step, 0);
    if (i == 0) continue;
    const Loop& before = piece.loops[i - 1];
    EXPECT_TRUE(before.target_axis < l.target_axis ||
                (before.target_axis == l.target_axis && before.target_step > (l.count - 1) * l.target_step))
        << "loop " << i << " is out of order";
  }
  for (std::size_t i = 0; piece.leaf >= 0 && i < piece.loops.size(); ++i) {
    const Loop& outer = piece.loops[i];
    std::int64_t inside = 0;  // span of the loops with smaller steps on the same leaf axis
    for (const Loop& l : piece.loops) {
      if (l.leaf_axis == outer.leaf_axis && std::abs(l.leaf_step) < std::abs(outer.leaf_step)) {
        inside += (l.count - 1) * std::abs(l.leaf_step);
      }
    }
    EXPECT_GT(std::abs(outer.leaf_step), inside) << "loop " << i << " overlaps another in the leaf";
  }
}

}  // namespace

void PrintTo(const Cell& cell, std::ostream* os) {
  *os << "leaf " << cell.leaf << "[" << cell.index << "]";
  for (const std::string& op : cell.ops) *os << ", " << op;
}

std::vector<Cell> Evaluate(const Expr& root) { return Walk(root, 1); }
std::vector<Cell> EvaluateOwners(const Expr& root, int size) { return Walk(root, size); }

void ForEachIndex(const Shape& shape, const std::function<void(const Dims&)>& visit) {
  Dims index = Dims::Filled(shape.size(), 0);
  const std::int64_t count = CheckedCount(shape);
  for (std::int64_t n = 0; n < count; ++n) {
    visit(index);
    for (std::size_t a = shape.size(); a-- > 0;) {
      if (++index[a] < shape[a]) break;
      index[a] = 0;
    }
  }
}

std::int64_t RowMajor(const Shape& shape, const Dims& index) {
  std::int64_t at = 0;
  for (std::size_t a = 0; a < shape.size(); ++a) at = at * shape[a] + index[a];
  return at;
}

void ForEachElement(const Piece& piece, const std::function<void(const Dims&, const Dims&)>& visit) {
  std::vector<std::int64_t> i(piece.loops.size(), 0);
  for (std::int64_t n = piece.count(); n > 0; --n) {
    Dims target = piece.target_origin, leaf = piece.leaf_origin;
    for (std::size_t k = 0; k < i.size(); ++k) {
      target[At(piece.loops[k].target_axis)] += i[k] * piece.loops[k].target_step;
      if (piece.leaf >= 0) leaf[At(piece.loops[k].leaf_axis)] += i[k] * piece.loops[k].leaf_step;
    }
    visit(target, leaf);
    for (std::size_t k = i.size(); k-- > 0;) {
      if (++i[k] < piece.loops[k].count) break;
      i[k] = 0;
    }
  }
}

std::string SpellOp(const ElementOp& op) {
  if (op.op == Op::kCast) return "cast " + std::string(DTypeName(op.from)) + " " + std::string(DTypeName(op.to));
  return (op.op == Op::kScale ? "scale " : "offset ") + Number(op.factor);
}

std::map<int, Shape> LeafShapes(const Expr& root) {
  std::map<int, Shape> out;
  if (root->op == Op::kLeaf) out[root->leaf] = root->shape;
  for (const Expr& in : root->inputs) out.merge(LeafShapes(in));
  return out;
}

std::vector<Cell> CellsOfPieces(const Expr& root, const Box& box, const std::vector<Piece>& pieces) {
  const std::map<int, Shape> shapes = LeafShapes(root);
  std::vector<Cell> cells(static_cast<std::size_t>(box.count()));
  std::vector<int> hits(cells.size(), 0);
  for (const Piece& piece : pieces) {
    CheckInvariants(piece);
    ForEachElement(piece, [&](Dims target, const Dims& leaf) {
      Cell cell;
      if (piece.leaf >= 0) {
        const Shape& shape = shapes.at(piece.leaf);
        EXPECT_TRUE((Box{leaf, Dims::Filled(leaf.size(), 1)}.FitsIn(shape))) << ToString(leaf) << ToString(shape);
        cell = {piece.leaf, RowMajor(shape, leaf), {}, -1};
      }
      for (const ElementOp& op : piece.ops) cell.ops.push_back(SpellOp(op));
      const bool inside = box.Contains({target, Dims::Filled(target.size(), 1)});
      EXPECT_TRUE(inside) << ToString(target) << " outside " << ToString(box);
      if (!inside) return;
      for (std::size_t a = 0; a < target.size(); ++a) target[a] -= box.offsets[a];
      const auto at = static_cast<std::size_t>(RowMajor(box.sizes, target));
      ++hits[at];
      cells[at] = cell;
    });
  }
  EXPECT_EQ(hits, std::vector<int>(hits.size(), 1)) << "elements covered not exactly once";
  return cells;
}

}  // namespace crossdock::expr
