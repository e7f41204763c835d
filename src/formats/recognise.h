// SPDX-License-Identifier: Apache-2.0
/// \file  What one directory is, told by its content alone (registry.h looks around it and chooses).
/// Sources: Megatron-LM 0.20 dist_checkpointing (metadata.json), torch DCP (.metadata), Orbax 0.12 (_CHECKPOINT_METADATA),
/// safetensors and transformers file names.
/// Errors: none: what cannot be read is no match. Threads: functions are independent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/registry.h"
#include "io/storage.h"

namespace crossdock::formats {

/// One checkpoint: the kind, and for Megatron whether its save was finished (metadata.json is written last).
struct Content {
  Kind kind = Kind::kHf;
  bool complete = true;
  std::string incomplete_reason;
};
[[nodiscard]] std::optional<Content> ContentOf(io::Storage& storage, const std::string& dir);

/// Why a run must not go on from this step, or nothing. Looks deeper than ContentOf: into the items of an Orbax step.
[[nodiscard]] std::optional<std::string> UnfinishedReason(io::Storage& storage, const std::string& dir, const Content& content);

/// A step directory of a run root, by name: "iter_0000020" (20), "release" (0), "12" and "prefix_12" (Orbax).
struct StepDir {
  std::string name;
  std::int64_t step = 0;
  bool release = false;
};
/// All digits after the last "_", or all of the name; nothing for other names.
[[nodiscard]] std::optional<std::int64_t> StepOfName(std::string_view name);
[[nodiscard]] std::vector<StepDir> StepDirsOf(io::Storage& storage, const std::string& root);  ///< by step, `release` first

inline constexpr std::string_view kTracker = "latest_checkpointed_iteration.txt";
/// What Megatron's tracker says: the iteration that the run last saved to its end. kCorrupt: neither a number nor `release`.
[[nodiscard]] Result<StepChoice> ReadTracker(io::Storage& storage, const std::string& path);

}  // namespace crossdock::formats
