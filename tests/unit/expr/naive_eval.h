// SPDX-License-Identifier: Apache-2.0
/// \file  The judge of the expression tests: evaluates a tree element by element, forwards, from the leaves to the
/// root. It shares nothing with PullBack, which goes the other way and never looks at elements.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "expr/expr.h"
#include "expr/pull_back.h"

namespace crossdock::expr {

/// What an element of the root is: an element of a leaf, and the compute steps it went through.
struct Cell {
  int leaf = -1;                 ///< -1: padding
  std::int64_t index = 0;        ///< row-major in the leaf
  std::vector<std::string> ops;  ///< innermost first
  int owner = -1;                ///< rank that holds it, -1 = all of them (see EvaluateOwners)
  bool operator==(const Cell& o) const { return leaf == o.leaf && index == o.index && (leaf < 0 || ops == o.ops); }
};
void PrintTo(const Cell& cell, std::ostream* os);

/// All elements of the root, row-major.
[[nodiscard]] std::vector<Cell> Evaluate(const Expr& root);
/// As Evaluate, with owners for tensor-parallel size `size`. Where an axis that is seen does not divide, the owner
/// is kNoOwner.
inline constexpr int kNoOwner = -2;
[[nodiscard]] std::vector<Cell> EvaluateOwners(const Expr& root, int size);

/// Calls `visit` with each index of a shape, in row-major order.
void ForEachIndex(const Shape& shape, const std::function<void(const Dims&)>& visit);
[[nodiscard]] std::int64_t RowMajor(const Shape& shape, const Dims& index);
/// Calls `visit` with the target and leaf index of each element of a piece.
void ForEachElement(const Piece& piece, const std::function<void(const Dims&, const Dims&)>& visit);
/// "cast BF16 F32", "scale 0.5": a step as Cell::ops spells it.
[[nodiscard]] std::string SpellOp(const ElementOp& op);
/// Shapes of the leaves of a tree by ordinal.
[[nodiscard]] std::map<int, Shape> LeafShapes(const Expr& root);
/// The elements of `box` as `pieces` say; ADD_FAILUREs where they do not cover it exactly once or break an invariant
/// of pull_back.h. Row-major in the box.
[[nodiscard]] std::vector<Cell> CellsOfPieces(const Expr& root, const Box& box, const std::vector<Piece>& pieces);

}  // namespace crossdock::expr
