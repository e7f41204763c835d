// SPDX-License-Identifier: Apache-2.0
/// \file  A conversion in the words of the command line, for the journal of an interrupted run: when another command would
/// go on with it, the words tell what differs. Only what decides the output or the cut into tasks is said, and no default.
/// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "crossdock/options.h"

namespace crossdock::convert {

/// "--to megatron", "--tp 2", "--set lr=0.1", ... in a fixed order, each printable and without a tab.
[[nodiscard]] std::vector<std::string> RequestWords(const ConvertOptions& options);

}  // namespace crossdock::convert
