// SPDX-License-Identifier: Apache-2.0
/// \file  Layout: how a target is divided among ranks. TP, PP (even, uneven, explicit), later VPP, EP, ETP.
/// Source of the stage rules: Megatron-LM `transformer_block.get_num_layers_to_build`, megatron-core 0.19.2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::layout {

struct ParallelLayout {
  int tp = 1;
  int pp = 1;
  std::vector<std::int64_t> pipeline_layers;        ///< explicit layers of each stage, or empty
  std::optional<std::int64_t> first_stage_layers;   ///< decoder_first_pipeline_num_layers
  std::optional<std::int64_t> last_stage_layers;
};

/// Which global layers each stage holds.
struct StageMap {
  struct Stage {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  std::vector<Stage> stages;
  [[nodiscard]] int StageOf(std::int64_t layer) const;
};

/// kUsage with the arithmetic and the flags for an explicit layout when the layers do not divide (user case B53).
[[nodiscard]] Result<StageMap> MakeStageMap(const ParallelLayout& layout, std::int64_t layers);

}  // namespace crossdock::layout
