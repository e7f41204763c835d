// SPDX-License-Identifier: Apache-2.0
/// \file  What Megatron's legacy files call things: directories of ranks, tensors of a rank's module, extra states.
/// Source: megatron-core 0.19.2, GPTModel.state_dict and training/checkpointing.py (get_checkpoint_name). Keys of torch_dist are
/// global and spelled as TransformerEngine's; here layers count within a model chunk, and modules of Megatron's own layers
/// (transformer_impl "local") have names of their own.
/// Errors: kUnsupported for keys that no GPTModel has. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "dialects/mcore/registration_order.h"
#include "tensor/slot.h"

namespace crossdock::dialects::mcore {

/// "mp_rank_01", or "mp_rank_01_002" with more stages than one; with more expert ranks than one, that of the expert rank last.
[[nodiscard]] std::string RankDirName(int tensor_rank, int stage, int stages, int expert_rank = 0, int expert_ranks = 1);

/// "decoder.layers.mlp.x" or "decoder.layers.7.mlp.x" as a module of the chunk calls it: "decoder.layers.<local>.mlp.x".
[[nodiscard]] std::string ModuleName(std::string_view model_key, std::int64_t local_layer, LayerSpec spec);

/// "mtp.layers.0.transformer_layer.mlp.x" as its module is called since 0.17: "mtp.layers.0.mtp_model_layer.mlp.x".
inline constexpr std::string_view kMtpPrefix = "mtp.";
[[nodiscard]] std::string MtpModuleName(std::string_view model_key, LayerSpec spec);

/// One block of a stack in a tower: "vision_model.decoder.layers.mlp.x" -> "vision_model.decoder.layers.<block>.mlp.x".
[[nodiscard]] std::string TowerModuleName(std::string_view model_key, std::int64_t block);

/// Whether a key is that of all experts of a layer, which a module holds one by one.
[[nodiscard]] bool IsOfExperts(std::string_view model_key);

/// The name that ModuleName made of such a key, for one expert of the rank: `mlp.experts.linear_fc1.weight<e>` in a grouped
/// module, else `mlp.experts.local_experts.<e>.linear_fc1.weight`.
[[nodiscard]] std::string ExpertName(std::string_view module_name, std::int64_t local_expert, bool grouped);

/// Whether the run that has these arguments holds the experts of a rank in one grouped module: TransformerEngine's layers and
/// moe_grouped_gemm, which is taken for true where it is not stored.
[[nodiscard]] bool GroupsExperts(const Value& args);

/// The slot of a legacy tensor, `<rank dir>/<file>#<path>`; nothing for other names.
[[nodiscard]] std::optional<Slot> LegacySlot(std::string_view name);

/// An item of a module's state: a parameter, or an extra state without data.
struct StateItem {
  std::string name;
  bool parameter = true;
  bool none = false;       ///< an extra state that is None rather than an empty tensor
};
/// The state of a model chunk in the order in which torch lists it, from its parameters in order of registration: after the
/// parameters of each module its `_extra_state`. `head`: the chunk ends in an output layer, which has one even without a weight;
/// `prefix`: of the language model whose it is, where that is a part of a larger one.
[[nodiscard]] std::vector<StateItem> WithExtraStates(const std::vector<std::string>& parameters, LayerSpec spec, std::string_view prefix, bool head);

}  // namespace crossdock::dialects::mcore
