// SPDX-License-Identifier: Apache-2.0
/// \file  The identity of a plan: what decides the output's bytes and the cut into tasks, as one hash.
/// In it: the source's tensors, chunks and file identities (size, mtime, inode; not its directory), the placed target,
/// the expressions, the bound of a task, and the planner's version. Not in it: threads, and the memory but for the
/// bound of a task. So a run can be resumed with other threads, and its journal still counts the same tasks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "expr/expr.h"
#include "tensor/catalog.h"

namespace crossdock::plan {

/// An expression written out in full; equal texts mean equal trees, shard marks aside.
[[nodiscard]] std::string ExprKey(const expr::Expr& root);

[[nodiscard]] std::string PlanHash(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs,
                                   std::int64_t task_bytes, bool contiguous_outputs);

}  // namespace crossdock::plan
