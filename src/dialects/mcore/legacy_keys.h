// SPDX-License-Identifier: Apache-2.0
/// \file  A module's parameter name in a legacy file as the torch_dist key it would have, with its layer number apart.
/// On disk: megatron-core names (`decoder.layers.<local>.self_attention.linear_qkv.weight`); the norms of Megatron's own layers
/// (`input_layernorm`, `pre_mlp_layernorm`) take the places of TransformerEngine's fused ones, as in torch_dist. Names of before
/// Megatron-Core (`language_model.encoder.layers.<local>.self_attention.query_key_value.weight`) are read by what Megatron-LM's own
/// converters said of them; no library of today writes them.
/// Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace crossdock::dialects::mcore {

struct LegacyName {
  std::string key;                     ///< the torch_dist key; of a layer only what follows "decoder.layers.<i>."
  std::optional<std::int64_t> layer;   ///< the number on this rank and chunk
  bool old = false;                    ///< a name of before Megatron-Core
  bool head_copy = false;              ///< pre-mcore `word_embeddings_for_head`: the embedding again
};
[[nodiscard]] LegacyName ParseLegacyName(std::string_view name);

}  // namespace crossdock::dialects::mcore
