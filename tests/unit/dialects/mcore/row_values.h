// SPDX-License-Identifier: Apache-2.0
/// \file  The value of an expression as numbers, for tests: each element is told by the leaf and the place it comes from.
#pragma once

#include <cstdint>
#include <vector>

#include "expr/pull_back.h"

namespace crossdock::dialects::mcore {

/// Row-major: leaf * 1,000,000 + the element's row-major place in the leaf; -1 for padding. A leaf's shape is that of its node.
inline std::vector<std::int64_t> RowValues(const expr::Expr& root) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(CheckedCount(root->shape)), -1);
  const Dims out_strides = RowMajorStrides(root->shape);
  const auto leaf_shape = [&](auto&& self, const expr::Expr& node, int leaf) -> const Shape* {
    if (node->op == expr::Op::kLeaf) return node->leaf == leaf ? &node->shape : nullptr;
    for (const expr::Expr& in : node->inputs) {
      if (const Shape* found = self(self, in, leaf)) return found;
    }
    return nullptr;
  };
  for (std::size_t at = 0; at < values.size(); ++at) {
    Box box = Box::Whole(root->shape);
    std::int64_t rest = static_cast<std::int64_t>(at);
    for (std::size_t axis = 0; axis < box.rank(); ++axis) {
      box.offsets[axis] = rest / out_strides[axis];
      rest %= out_strides[axis];
      box.sizes[axis] = 1;
    }
    for (const expr::Piece& piece : expr::PullBack(root, box)) {
      if (piece.leaf < 0) continue;
      const Dims strides = RowMajorStrides(*leaf_shape(leaf_shape, root, piece.leaf));
      const Box from = expr::LeafBounds(piece);
      values[at] = static_cast<std::int64_t>(piece.leaf) * 1'000'000;
      for (std::size_t axis = 0; axis < from.rank(); ++axis) values[at] += from.offsets[axis] * strides[axis];
    }
  }
  return values;
}

}  // namespace crossdock::dialects::mcore
