// SPDX-License-Identifier: Apache-2.0
/// \file  The planner: from a source catalog, a placed target catalog and an expression for each target entry to a
/// checked Plan. It knows neither formats nor families.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "crossdock/result.h"
#include "expr/expr.h"
#include "plan/plan.h"
#include "plan/tiles.h"
#include "tensor/catalog.h"

namespace crossdock::plan {

struct PlanOptions {
  std::int64_t memory = std::int64_t{512} << 20U;  ///< bytes for buffers of all threads together, catalogs included
  int threads = 1;
  bool contiguous_outputs = false;  ///< the writer wants a CRC-32 for each chunk
  std::int64_t task_bytes = 0;      ///< the bound of a task's buffer; 0: from `memory`, see tiles.h
};

/// Makes and checks the plan. `exprs[i]` gives entry i of `target`; its leaf ordinals are entry indices of `source`.
/// A QuantizeValues root pairs with the QuantizeScales root over the same input and format: one task writes both.
/// Errors (all found are reported together in one Error, at most 20 by name): shape or dtype of an expression and
/// its entry differ; a leaf's shape or dtype differs from the source entry; target chunks do not cover their entry;
/// memory too small for the smallest tile (kUsage, with the least that would do).
/// The cut into tasks, and the hash, depend on `memory` (below 256 MiB) and never on `threads`: see tiles.h.
/// peak_memory = catalogs and plan + min(threads x largest task + decoded chunks, what the budget leaves); a library's own tables, the
/// program and the page cache are not in it.
/// Threads: pure.
[[nodiscard]] Result<Plan> MakePlan(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs,
                                    const PlanOptions& options);

/// Makes the tasks of a plan within limits that may be asked for again, larger.
using CutTasks = std::function<Status(const TileLimits&, TaskBuilder&, std::vector<Task>&)>;

/// The part of MakePlan after the checks, for whoever cuts otherwise: tasks in order, small ones joined, totals. No hash.
[[nodiscard]] Result<Plan> PlanTasks(const Catalog& source, const Catalog& target, const CutTasks& cut, const PlanOptions& options);

}  // namespace crossdock::plan
