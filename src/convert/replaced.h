// SPDX-License-Identifier: Apache-2.0
/// \file  What --force would delete. A target that exists is replaced only when it is recognised as a checkpoint: a
/// mistyped path must not cost somebody's other files.
/// Errors: kUsage with the names found, for anything else. Threads: functions are independent.
#pragma once

#include <optional>
#include <string>

#include "crossdock/result.h"
#include "io/storage.h"

namespace crossdock::convert {

/// Nothing when nothing is there or an empty directory; else the name of the format that lies at `unit` ("hf", "megatron").
[[nodiscard]] Result<std::optional<std::string>> WhatIsReplaced(io::Storage& storage, const std::string& unit);

}  // namespace crossdock::convert
