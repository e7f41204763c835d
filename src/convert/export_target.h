// SPDX-License-Identifier: Apache-2.0
/// \file  Where an export may go. (Its path is made by ExportPath of crossdock/live_save.h.)
/// Errors: kUsage. Threads: independent calls may run at once.
#pragma once

#include <string>

#include "crossdock/result.h"
#include "io/storage.h"

namespace crossdock::convert {

/// A save replaces an earlier one of its own kind and nothing else, and takes no name beside the run's own checkpoints that Megatron uses itself.
[[nodiscard]] Status CheckReplaces(io::Storage& storage, const std::string& path);

}  // namespace crossdock::convert
