// SPDX-License-Identifier: Apache-2.0
/// \file  The walk from a root to its leaves that carries a region along. Private to this room.
#pragma once

#include <vector>

#include "expr/region.h"

namespace crossdock::expr {

class Walk {
 public:
  enum class End { kLeaves, kMarks };
  /// kMarks: stops at the outermost shard marks; a piece's `leaf` is then the ordinal of its mark in marks(), and
  /// what lies under no mark comes as a fill.
  explicit Walk(End end) : end_(end) {}

  /// Appends the pieces of `box` of `root`. REQUIRES: no quantize node on the way.
  void Run(const Expr& root, const Box& box);
  [[nodiscard]] std::vector<Piece>& pieces() { return pieces_; }
  [[nodiscard]] const std::vector<const Node*>& marks() const { return marks_; }

 private:
  void Visit(const Node& node, Region region);
  void VisitConcat(const Node& node, Region region);
  void VisitPad(const Node& node, Region region);
  void VisitElementwise(const Node& node, Region region);
  void Emit(int leaf, Region region, const Node* dequantize = nullptr);
  void EmitFill(Region region);

  End end_;
  std::vector<ElementOp> ops_;  // of the nodes on the way, outermost first
  std::vector<Piece> pieces_;
  std::vector<const Node*> marks_;
};

}  // namespace crossdock::expr
