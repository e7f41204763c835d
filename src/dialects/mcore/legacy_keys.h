// SPDX-License-Identifier: Apache-2.0
/// \file  A module's parameter name in a legacy file as the torch_dist key it would have, with its layer number apart.
/// On disk: megatron-core names (`decoder.layers.<local>.self_attention.linear_qkv.weight`), norms as the module calls them. Experts
/// are counted within their rank, in one of three forms: grouped (`mlp.experts.linear_fc1.weight<e>`), one module each
/// (`mlp.experts.local_experts.<e>.linear_fc1.weight`), or all of a rank in one matrix (`mlp.experts.weight1`, `weight2`; GroupedMLP of
/// megatron-core up to 0.16). Names of before Megatron-Core (`language_model.encoder.layers.<local>.self_attention.query_key_value.weight`)
/// are read by what Megatron-LM's own converters said of them; no library of today writes them.
/// Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace crossdock::dialects::mcore {

struct LegacyName {
  std::string prefix;                  ///< of a language model within a larger one: "language_model.", "foundation_model."
  std::string key;                     ///< the torch_dist key after the prefix; of a layer only what follows "decoder.layers.<i>."
  std::optional<std::int64_t> layer;   ///< the number on this rank and chunk
  std::optional<std::int64_t> expert;  ///< the number on this rank; the key is that of all experts of the layer
  bool all_experts = false;            ///< one matrix of all experts of this rank; the key is that of the experts of the layer
  [[nodiscard]] bool of_experts() const { return all_experts || expert.has_value(); }
  bool old = false;                    ///< a name of before Megatron-Core
  bool head_copy = false;              ///< pre-mcore `word_embeddings_for_head`: the embedding again
};
/// `larger`: the names are those of a larger model, where "language_model." is no name of before Megatron-Core.
[[nodiscard]] LegacyName ParseLegacyName(std::string_view name, bool larger = false);
/// Whether no other model has a parameter of this name: those of towers, and what only Megatron-Core's own language models hold.
[[nodiscard]] bool IsOfLargerModel(std::string_view name);

}  // namespace crossdock::dialects::mcore
