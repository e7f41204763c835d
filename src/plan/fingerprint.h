// SPDX-License-Identifier: Apache-2.0
/// \file  The identity of a plan: what decides the output's bytes and the cut into tasks, as one hash.
/// In it: the source's tensors, chunks and file identities (size, mtime, inode; not its directory), the placed target,
/// the expressions, the list of tasks, and the planner's version. Not in it: threads, and the memory but for the cut
/// that follows from it. So a run can be resumed with other threads, and its journal still counts the same tasks.
#pragma once

#include <span>
#include <string>

#include "expr/expr.h"
#include "plan/plan.h"
#include "tensor/catalog.h"

namespace crossdock::plan {

/// An expression written out in full; equal texts mean equal trees, shard marks aside.
[[nodiscard]] std::string ExprKey(const expr::Expr& root);

[[nodiscard]] std::string PlanHash(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs,
                                   std::span<const Task> tasks);

}  // namespace crossdock::plan
