// SPDX-License-Identifier: Apache-2.0
/// \file  A rank's part of a global tensor: rows and columns that its chunks mark, of one layer where layers are stacked.
/// Gated halves come as two boxes a rank and are joined in their order: a rank's fc1 is [its gate; its up].
/// Errors: kUnsupported for a tensor whose chunks are no rank's. Threads: a LegacyShards is immutable.
#pragma once

#include <vector>

#include "expr/expr.h"
#include "tensor/catalog.h"

namespace crossdock::dialects::mcore {

struct LegacyShard {
  Shape shape;
  expr::Expr expr;
};

/// One layer of a stacked tensor, without the layer axis; for `layer` < 0 the tensor itself.
[[nodiscard]] Result<expr::Expr> LayerOf(const expr::Expr& stacked, std::int64_t layer);

/// The part of tensor rank `rank` of `entry`, whose chunks were marked shard = stage * tp + rank; a tensor that only rank 0
/// holds chunks of is every rank's. `whole` is what LayerOf gave for `layer`.
[[nodiscard]] Result<LegacyShard> ShardOf(const Entry& entry, const expr::Expr& whole, int tp, int rank, std::int64_t layer);

}  // namespace crossdock::dialects::mcore
