// SPDX-License-Identifier: Apache-2.0
/// \file  Rebuild: the same operation over other inputs, through the builder that checks it. Private to this room.
#pragma once

#include <vector>

#include "expr/expr.h"

namespace crossdock::expr {

/// `node` over `inputs` (as many as it has, of the same shapes), its mark kept; shape and dtype follow anew.
/// Errors: as the builders. REQUIRES: `node` is no leaf.
[[nodiscard]] Result<Expr> Rebuild(const Node& node, std::vector<Expr> inputs);

/// `to` with the mark of `from`, if that has one. REQUIRES: equal shapes.
[[nodiscard]] Expr WithMarkOf(const Node& from, Expr to);

}  // namespace crossdock::expr
