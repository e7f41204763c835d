// SPDX-License-Identifier: Apache-2.0
/// \file  Jobs: what a plan has to produce: one target tensor by an expression, or a pair (q, s) from one input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "crossdock/result.h"
#include "expr/expr.h"
#include "tensor/catalog.h"

namespace crossdock::plan {

[[nodiscard]] inline const Entry& EntryAt(const Catalog& catalog, std::int32_t i) { return catalog.entries[static_cast<std::size_t>(i)]; }

struct Job {
  expr::Expr expr;           ///< simplified; of a pair: the input that is quantized
  std::int32_t entry = 0;    ///< target entry; of a pair: that of q
  std::int32_t scales = -1;  ///< target entry of s, -1 when the job is no pair
  expr::Fp8Format fp8;       ///< of a pair
  std::int64_t first_amax = -1;  ///< of a pair that is quantized in parts: QuantizePart::first; else -1
  [[nodiscard]] bool is_pair() const { return scales >= 0; }
  [[nodiscard]] bool is_part() const { return first_amax >= 0; }
  /// What a tile is a multiple of on an axis: whole blocks, or in parts any elements. REQUIRES: is_pair().
  [[nodiscard]] std::int64_t unit(std::size_t axis) const { return is_part() ? 1 : block(axis); }
  /// Elements of a block on an axis, no more than there are. REQUIRES: is_pair().
  [[nodiscard]] std::int64_t block(std::size_t axis) const {
    return std::max<std::int64_t>(std::min(axis == 0 ? fp8.block.rows : fp8.block.cols, expr->shape[axis]), 1);
  }
};

/// Jobs in the order of the target's entries; tensors without elements have none. A QuantizeValues root is joined
/// with the QuantizeScales root over the same input and format: kUnsupported when one is missing, or when the edge of
/// a chunk cuts a block. REQUIRES: CheckInputs passed.
[[nodiscard]] Result<std::vector<Job>> MakeJobs(const Catalog& target, std::span<const expr::Expr> exprs);

/// The regions of a pair's q in which one chunk of q and one of s are written. REQUIRES: job.is_pair().
[[nodiscard]] std::vector<Box> PairRegions(const Job& job, const Catalog& target);
/// The box of s that belongs to a box of whole blocks of q.
[[nodiscard]] Box ScalesBox(const Job& job, const Box& box);

}  // namespace crossdock::plan
