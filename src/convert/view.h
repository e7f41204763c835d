// SPDX-License-Identifier: Apache-2.0
/// \file  View of crossdock/view.h over any storage. Errors: as there.
#pragma once

#include <memory>

#include "crossdock/view.h"
#include "io/storage.h"

namespace crossdock::convert {

/// `storage` outlives the view.
[[nodiscard]] Result<std::unique_ptr<View>> OpenView(io::Storage& storage, const ConvertOptions& options, const Hooks& hooks = {});

}  // namespace crossdock::convert
