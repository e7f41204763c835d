// SPDX-License-Identifier: Apache-2.0
/// \file  What a written Megatron checkpoint is called: iter_NNNNNNN or release, its tracker, and metadata.json.
/// Reference: Megatron-LM training/checkpointing.py; a directory `release` counts as iteration 0.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

struct TargetUnit {
  std::string name;                 ///< "iter_0000007", "release"
  std::int64_t iteration = 0;
  bool release = false;
};
/// --for: names what Megatron-Bridge loads; its own imports are called iteration 0.
inline constexpr std::string_view kBridgeConsumer = "megatron-bridge";

/// --iteration, --release, else the source's step, else release (iteration 0 for Megatron-Bridge). kUsage for impossible requests.
[[nodiscard]] Result<TargetUnit> ChooseUnit(const TargetOptions& options, std::optional<std::int64_t> step);

/// True for a checkpoint that lies in a directory called `release`: its iteration 0 says nothing.
[[nodiscard]] bool IsRelease(const Catalog& source);

/// latest_checkpointed_iteration.txt, written last.
[[nodiscard]] SideFile Tracker(const TargetUnit& unit);

/// metadata.json; the keys of the common backend are left out: absent means the same to every version.
[[nodiscard]] Value BackendMetadata();

}  // namespace crossdock::dialects::mcore
