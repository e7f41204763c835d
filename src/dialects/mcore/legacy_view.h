// SPDX-License-Identifier: Apache-2.0
/// \file  The shards of a legacy checkpoint put together: global torch_dist keys over the entries of the ranks' files.
/// Layers get their global numbers and, where they are alike, one layer axis; parts of tensor ranks are joined by the cut table;
/// the copy of a tied embedding on the last stage is left out, to be compared (`copies`).
/// Errors: those of the ranks and their parameters; kUnsupported for experts, old QKV orders and names that no rule divides.
/// Threads: functions are pure.
#pragma once

#include "dialects/mcore/global_view.h"

namespace crossdock::dialects::mcore {

[[nodiscard]] Result<GlobalView> SeeLegacy(const Catalog& source, const ViewOptions& options);

}  // namespace crossdock::dialects::mcore
