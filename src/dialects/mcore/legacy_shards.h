// SPDX-License-Identifier: Apache-2.0
/// \file  A rank's part of a global tensor: rows and columns that its chunks mark, of one layer where layers are stacked, and of one
/// expert where experts are.
/// Gated halves come as two boxes a rank and are joined in their order: a rank's fc1 is [its gate; its up].
/// Errors: kUnsupported for a tensor whose chunks are no rank's. Threads: all is immutable.
#pragma once

#include <map>
#include <span>
#include <utility>
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

/// The chunks of an entry by the rank that holds them and, where layers are stacked, by layer: a tensor of all experts of all layers has
/// 10^5 of them, and is asked for each expert of each layer. REQUIRES: the entry outlives it.
class ChunksByRank {
 public:
  /// Chunks of one of `size` ranks a stage have shard = stage * size + rank.
  ChunksByRank(const Entry& entry, int size, bool stacked);
  /// None is an empty span.
  [[nodiscard]] std::span<const Chunk* const> Of(int rank, std::int64_t layer) const;
  [[nodiscard]] const Entry& entry() const { return *entry_; }

 private:
  const Entry* entry_;
  std::map<std::pair<int, std::int64_t>, std::vector<const Chunk*>> chunks_;
};

/// What `rank` holds of `part`; where it holds no chunk, what `first` holds for all of them (a tensor that is not divided). `whole` is
/// what PartOf gave for the part.
[[nodiscard]] Result<LegacyShard> ShardOf(const ChunksByRank& chunks, const expr::Expr& whole, int rank, int first, const LegacyPart& part);

}  // namespace crossdock::dialects::mcore
