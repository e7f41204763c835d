// SPDX-License-Identifier: Apache-2.0
/// \file  Where a save goes, and where it may go.
/// Errors: kUsage. Threads: independent calls may run at once.
#pragma once

#include <string>

#include "crossdock/live_save.h"
#include "crossdock/result.h"
#include "formats/registry.h"
#include "io/storage.h"

namespace crossdock::convert {

/// The directory of a step: for a Hugging Face directory ExportPath, for torch_dist `iter_%07d` in the run's root.
[[nodiscard]] Result<std::string> SavePath(const ExportOptions& options, std::int64_t step);

/// A save replaces an earlier one of its own kind and nothing else. A Hugging Face directory takes no name beside the run's own checkpoints
/// that Megatron uses itself.
[[nodiscard]] Status CheckReplaces(io::Storage& storage, const std::string& path, formats::Kind kind);

}  // namespace crossdock::convert
