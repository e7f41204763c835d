// SPDX-License-Identifier: Apache-2.0
/// \file  `_extra_state` objects: one for each TransformerEngine module, without which a TE model refuses to load under
/// Megatron's default strictness. They are empty but under delayed FP8 scaling.
/// On disk: key "<module>._extra_state/shard_<i>_<n>", content `[torch.empty(0, dtype=uint8)]` (megatron-core 0.19.2).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/catalog.h"

namespace crossdock::dialects::mcore {

/// Objects ("object:<key>" -> value) for the TE modules that own the model tensors in `entries`.
[[nodiscard]] std::map<std::string, Value> EmptyExtraStates(const std::vector<Entry>& entries, std::int64_t layers);

/// Towers that are built of Megatron's own layers; others ("visual.") hold transformers' modules.
[[nodiscard]] bool IsMegatronsOwnTower(std::string_view key);
/// Whether a module is one of those that TransformerEngine makes: linear layers and norms.
[[nodiscard]] bool IsTransformerEngine(std::string_view module);

/// The value of an empty extra state.
[[nodiscard]] Value EmptyExtraState();

}  // namespace crossdock::dialects::mcore
