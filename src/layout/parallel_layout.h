// SPDX-License-Identifier: Apache-2.0
/// \file  How a checkpoint is divided among ranks, as a user or a run's arguments say it: sizes, and one of Megatron's ways
/// to hand layers to pipeline stages. What follows for a model is a StageMap (stage_map.h).
/// Source of the words: megatron-core 0.19.2, `TransformerConfig` and `megatron/training/arguments.py`.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace crossdock::layout {

struct ParallelLayout {
  int tp = 1;
  int pp = 1;
  int ep = 1;                                               ///< expert-parallel ranks: each holds E / ep experts, in order
  int etp = 0;                                              ///< tensor-parallel ranks of an expert; 0: as many as tp
  int encoder_tp = 0;                                       ///< tensor-parallel ranks of a vision tower; 0: as many as tp
  std::vector<std::int64_t> pipeline_layers;                ///< explicit layers of each stage, or empty
  std::optional<std::int64_t> first_stage_layers;           ///< decoder_first_pipeline_num_layers
  std::optional<std::int64_t> last_stage_layers;            ///< decoder_last_pipeline_num_layers
  int vpp = 1;                                              ///< model chunks of a stage; 1 beside pipeline_layout: as it says
  std::optional<std::int64_t> layers_per_virtual_stage;     ///< num_layers_per_virtual_pipeline_stage: another way to say vpp
  std::string pipeline_layout;                              ///< pipeline_model_parallel_layout, such as Et*3|(tt|)*2tL; or empty
  bool account_for_embedding = false;                       ///< the embedding counts as a layer when layers are divided
  bool account_for_loss = false;
  bool operator==(const ParallelLayout&) const = default;

  [[nodiscard]] int expert_tp() const { return etp > 0 ? etp : tp; }
  [[nodiscard]] int tower_tp() const { return encoder_tp > 0 ? encoder_tp : tp; }
  /// The rank within its stage that holds tensor part `tensor_rank` of one of `experts` experts. REQUIRES: ep divides them.
  [[nodiscard]] int expert_rank(std::int64_t expert, std::int64_t experts, int tensor_rank) const {
    return static_cast<int>(expert / (experts / ep)) * expert_tp() + tensor_rank;
  }
  /// The fewest ranks of a stage on which both divisions are whole: dense tensors count tp, experts ep * expert_tp().
  [[nodiscard]] int ranks_per_stage() const { return std::lcm(tp, ep * expert_tp()); }
};

}  // namespace crossdock::layout
