// SPDX-License-Identifier: Apache-2.0
/// \file  The planner's checks: two catalogs and the expressions between them fit together, before anything is cut.
/// Catalogs come from files and from rules, so every disagreement is an Error that names the tensor.
#pragma once

#include <span>

#include "crossdock/result.h"
#include "expr/expr.h"
#include "tensor/catalog.h"

namespace crossdock::plan {

/// All that MakePlan promises to check and that needs no cutting; everything found is reported together.
[[nodiscard]] Status CheckInputs(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs);

}  // namespace crossdock::plan
