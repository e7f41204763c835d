// SPDX-License-Identifier: Apache-2.0
/// \file  The names of Megatron's arguments, so that a mistyped one is told from one that is merely new.
/// Source: the options of megatron-core 0.19.2, megatron/training/arguments.py, and what its validate_args adds.
/// Threads: functions are pure.
#pragma once

#include <string_view>

namespace crossdock::dialects::mcore {

/// "lr", "min_lr", "weight_decay", ...
[[nodiscard]] bool IsMegatronArgument(std::string_view name);

/// The argument that differs from `name` by at most two typing errors, less than half of the word; "" when none does.
[[nodiscard]] std::string_view NearestMegatronArgument(std::string_view name);

}  // namespace crossdock::dialects::mcore
