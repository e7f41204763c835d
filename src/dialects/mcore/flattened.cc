// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/flattened.h"

namespace crossdock::dialects::mcore {
namespace {

Error NoGrid(const Shape& stored, const Shape& logical) {
  return MakeError(ErrorCode::kCorrupt, "a flattened optimizer shard is no grid of blocks of its tensor")
      .WithExpected("the blocks of " + ToString(logical))
      .WithFound(ToString(stored));
}

/// The sizes [x, y, z] of a block.
Result<Shape> BlockOf(const Shape& stored, const Shape& logical) {
  if (stored.size() != logical.size() + 1) return NoGrid(stored, logical);
  Shape block;
  for (std::size_t i = 0; i < logical.size(); ++i) {
    if (stored[i] < 1 || logical[i] < 0 || logical[i] % stored[i] != 0) return NoGrid(stored, logical);
    block.push_back(logical[i] / stored[i]);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t elements, ElementCount(block));
  if (elements != stored.back()) return NoGrid(stored, logical);
  return block;
}

}  // namespace

Result<expr::Expr> FromFlattenedBlocks(const expr::Expr& stored, const Shape& logical) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Shape block, BlockOf(stored->shape, logical));
  // Grid and block axes side by side; those of size 1 are left out, so that tensors of many axes stay within kMaxRank.
  std::vector<std::int64_t> apart;
  std::vector<int> grid_at(logical.size(), -1);
  std::vector<int> block_at(logical.size(), -1);
  const auto take = [&](const Dims& sizes, std::vector<int>& at) {
    for (std::size_t i = 0; i < logical.size(); ++i) {
      if (sizes[i] == 1) continue;
      at[i] = static_cast<int>(apart.size());
      apart.push_back(sizes[i]);
    }
  };
  take(stored->shape, grid_at);
  take(block, block_at);
  std::vector<int> axes;
  for (std::size_t i = 0; i < logical.size(); ++i) {
    for (const int at : {grid_at[i], block_at[i]}) {
      if (at >= 0) axes.push_back(at);
    }
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const Dims shape, Dims::FromSpan(apart));
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr out, expr::Reshape(stored, shape));
  CROSSDOCK_ASSIGN_OR_RETURN(out, expr::Transpose(std::move(out), std::move(axes)));
  CROSSDOCK_ASSIGN_OR_RETURN(out, expr::Reshape(std::move(out), logical));
  return expr::Simplify(out);
}

}  // namespace crossdock::dialects::mcore
