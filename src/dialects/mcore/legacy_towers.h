// SPDX-License-Identifier: Apache-2.0
/// \file  A vision tower in the files of a legacy checkpoint: its blocks by number, its parameters cut as its own tensor-parallel ranks
/// hold them. Names alone do not tell a tower's division: modules of transformers ("visual.") stand whole on every rank, Megatron's own
/// layers are cut as those of a decoder, and LoongForge's tower may have fewer ranks than the decoder, which hold its parts in turn.
/// Source: families/*_vision.toml, whose rows say how each tensor is cut. Errors: kCorrupt for rows that no division gives.
/// Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dialects/mcore/cut_table.h"
#include "tensor/dims.h"

namespace crossdock::dialects::mcore {

/// One block of a stack: "vision_model.decoder.layers.3.mlp.x" is number 3 of "vision_model.decoder.layers.mlp.x". The inverse of
/// TowerModuleName; nothing for what torch_dist has by name.
struct TowerBlock {
  std::string key;
  std::int64_t number = 0;
};
[[nodiscard]] std::optional<TowerBlock> FindTowerBlock(std::string_view module_name);

/// "encoder_model.text_encoder.": the word embeddings once more, beside the tower and cut as the decoder's are.
[[nodiscard]] bool RepeatsEmbedding(std::string_view key);

/// How a tower's ranks divide a parameter; nothing: every rank has all of it. REQUIRES: IsVision.
[[nodiscard]] std::optional<Cut> FindTowerCut(std::string_view key);

/// The number of a tower's tensor-parallel ranks, from what one of them holds of a fused QKV: three square matrices, one above the other.
[[nodiscard]] Result<int> TowerRanks(const Shape& local_qkv, int decoder_ranks);

}  // namespace crossdock::dialects::mcore
