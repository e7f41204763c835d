// SPDX-License-Identifier: Apache-2.0
/// \file  What ranks tell each other of a save before it begins: where it goes, and which of their tensors have another type than planned.
/// Errors: kUsage where ranks save to different targets, and where ranks that hold the same tensor hold it with different types: what is
/// written would depend on which of them is asked. Threads: as crossdock/comm.h.
#pragma once

#include <string>
#include <vector>

#include "convert/export_plan.h"
#include "crossdock/comm.h"
#include "crossdock/result.h"

namespace crossdock::convert {

/// Collective: all types that are new, of all ranks. `mine`: this rank's; `directories`: of all ranks (ExportDirectory).
[[nodiscard]] Result<ExportTypes> ShareTypes(Comm& comm, const Result<std::string>& target, const Result<ExportTypes>& mine, const std::vector<std::string>& directories);

}  // namespace crossdock::convert
