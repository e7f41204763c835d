// SPDX-License-Identifier: Apache-2.0
/// \file  What Megatron's legacy files call things: directories of ranks, tensors of a rank's module, extra states.
/// Source: megatron-core 0.19.2, GPTModel.state_dict and training/checkpointing.py (get_checkpoint_name). Keys of torch_dist are
/// global and spelled as TransformerEngine's; here layers count within a model chunk, and modules of Megatron's own layers
/// (transformer_impl "local") have names of their own.
/// Errors: kUnsupported for keys that no dense GPTModel has. Threads: functions are pure.
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

/// "mp_rank_01", or "mp_rank_01_002" with more stages than one.
[[nodiscard]] std::string RankDirName(int tensor_rank, int stage, int stages);

/// "decoder.layers.mlp.x" or "decoder.layers.7.mlp.x" as a module of the chunk calls it: "decoder.layers.<local>.mlp.x".
[[nodiscard]] std::string ModuleName(std::string_view model_key, std::int64_t local_layer, LayerSpec spec);

/// The slot of a legacy tensor, `<rank dir>/<file>#<path>`; nothing for other names.
[[nodiscard]] std::optional<Slot> LegacySlot(std::string_view name);

/// An item of a module's state: a parameter, or an extra state without data.
struct StateItem {
  std::string name;
  bool parameter = true;
  bool none = false;       ///< an extra state that is None rather than an empty tensor
};
/// The state of a model chunk in the order in which torch lists it, from its parameters in order of registration: after the
/// parameters of each module its `_extra_state`. `head`: the chunk ends in an output layer, which has one even without a weight.
[[nodiscard]] std::vector<StateItem> WithExtraStates(const std::vector<std::string>& parameters, LayerSpec spec, bool head);

}  // namespace crossdock::dialects::mcore
