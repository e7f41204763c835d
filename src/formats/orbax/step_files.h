// SPDX-License-Identifier: Apache-2.0
/// \file  The files of a step beside its items, and how small files are written.
/// On disk (FORMAT.md, 1 and 3): STEP/_CHECKPOINT_METADATA, STEP/commit_success.txt.
/// Errors: kIo. Threads: functions are independent.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossdock/result.h"
#include "io/storage.h"
#include "tensor/value.h"

namespace crossdock::formats::orbax {

inline constexpr std::string_view kCommit = "Checkpoint commit was successful";

struct StepForm {
  std::vector<std::string> items;   ///< none: a flat checkpoint
  std::string handler;              ///< class path, the same for all items
  bool commit_marker = true;
};

/// Name and content, in the order in which they are written.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> StepFiles(const StepForm& form, const Value& custom_metadata);

/// Writes a small file, over what a run that was interrupted left there.
[[nodiscard]] Status PutFile(io::Storage& storage, const std::string& path, std::string_view bytes);

}  // namespace crossdock::formats::orbax
