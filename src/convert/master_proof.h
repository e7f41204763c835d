// SPDX-License-Identifier: Apache-2.0
/// \file  Before anything is written: an optimizer state whose order was computed, and is recorded nowhere, is proven by its
/// master weights. Does nothing for every other source.
/// Errors: those of verify/masters.h; kIncomplete where there is no master weight or no model weight to compare.
#pragma once

#include "convert/source.h"
#include "crossdock/options.h"

namespace crossdock::convert {

[[nodiscard]] Status ProveMasters(const Source& source, const ConvertOptions& options, const Hooks& hooks);

}  // namespace crossdock::convert
