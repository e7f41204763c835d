// SPDX-License-Identifier: Apache-2.0
/// \file  The FP8 export that the options ask for, in the dialect's words.
/// Errors: kUsage for options that contradict each other, that need --fp8, or that the target cannot honour; kUnsupported for a device
/// that is not there.
#pragma once

#include <optional>

#include "crossdock/options.h"
#include "dialects/dialect.h"
#include "formats/registry.h"

namespace crossdock::convert {

/// Nothing when no FP8 is asked for. Where neither strategy nor block is named, an FP8 source (`hub`) keeps its own.
[[nodiscard]] Result<std::optional<dialects::Fp8Options>> Fp8OptionsOf(const ConvertOptions& options, formats::Kind to, const dialects::HubState& hub);

}  // namespace crossdock::convert
