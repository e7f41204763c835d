// SPDX-License-Identifier: Apache-2.0
/// \file  What the makers of a view share: sorting it, and saying in its common state what its optimizer tensors are.
/// Errors: kCorrupt. Threads: functions are pure.
#pragma once

#include <string>

#include "dialects/mcore/global_view.h"

namespace crossdock::dialects::mcore {

/// Why something cannot be read, in one line, for GlobalView::optimizer_refusal.
[[nodiscard]] std::string Reason(const Error& why);

/// Entries and expressions, sorted together. kCorrupt when two have one name.
[[nodiscard]] Status SortView(GlobalView* view);

/// The state as it is seen is no longer what the run wrote: a loader must look for whole tensors (fully_reshardable).
/// REQUIRES: a dict.
void DeclareFullyReshardable(Value* common);

}  // namespace crossdock::dialects::mcore
