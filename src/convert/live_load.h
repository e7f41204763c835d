// SPDX-License-Identifier: Apache-2.0
/// \file  LoadPlan of crossdock/live.h over any storage. Errors: as there.
#pragma once

#include <memory>

#include "crossdock/live.h"
#include "io/storage.h"

namespace crossdock::convert {

/// `storage` outlives the plan.
[[nodiscard]] Result<std::unique_ptr<LoadPlan>> MakeLoadPlan(io::Storage& storage, const LoadOptions& options, const Hooks& hooks = {});

}  // namespace crossdock::convert
