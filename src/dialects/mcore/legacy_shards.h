// SPDX-License-Identifier: Apache-2.0
/// \file  A rank's part of a global tensor: rows and columns that its chunks mark, of one layer where layers are stacked, and of one
/// expert where experts are.
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

/// What is taken of a tensor whose first axes count layers and experts; -1: it has no such axis.
struct LegacyPart {
  std::int64_t layer = -1;
  std::int64_t expert = -1;
  auto operator<=>(const LegacyPart&) const = default;
};

/// One layer (and expert) of a stacked tensor, without the axes that count them.
[[nodiscard]] Result<expr::Expr> PartOf(const expr::Expr& stacked, const LegacyPart& part);

/// The ranks that divide a tensor: chunks of one of `size` ranks a stage have shard = stage * size + rank. What `rank` holds no chunk
/// of, `first` does for all of them (a tensor that is not divided).
struct LegacyDivision {
  int size = 1;
  int rank = 0;
  int first = 0;
};

/// What that rank holds of `part` of `entry`. `whole` is what PartOf gave for the part.
[[nodiscard]] Result<LegacyShard> ShardOf(const Entry& entry, const expr::Expr& whole, const LegacyDivision& ranks, const LegacyPart& part);

}  // namespace crossdock::dialects::mcore
