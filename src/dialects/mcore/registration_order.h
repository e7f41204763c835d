// SPDX-License-Identifier: Apache-2.0
/// \file  The order in which a GPTModel registers its parameters: it numbers the plain optimizer's states and, read
/// backwards, lays out the buffers of the distributed one. No checkpoint in torch_dist form records it.
/// Source: megatron-core 0.19.2 (and 0.12.1), gpt_model.py, transformer_layer.py, attention.py, multi_latent_attention.py, mlp.py,
/// moe_layer.py, experts.py, shared_experts.py; TransformerEngine's LayerNormLinear. In an attention block `linear_proj` comes before
/// `linear_qkv`, as the base class builds it. A grouped module holds all first matrices of its experts, then all second ones;
/// TransformerEngine's GroupedLinear registers `bias<i>` right after `weight<i>`. A core attention has the offsets of its softmax and is built first.
/// Names are those of the module (`decoder.layers.<i>.input_layernorm.weight`) or of torch_dist, which gives the norms of
/// Megatron's own layers the names of TransformerEngine's; the two specifications register the input norm at different places.
/// A layer of multi-token prediction has its two norms and its projection before the decoder layer within it, and a norm after.
/// Buffers that are stored (`mlp.router.expert_bias`) have a place too: that in the module's state.
/// Errors: kUnsupported for a name that no GPTModel has. Threads: functions are pure.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "tensor/value.h"

namespace crossdock::dialects::mcore {

enum class LayerSpec : std::uint8_t {
  kTransformerEngine,  ///< transformer_impl "transformer_engine": norms are part of the linear layers after them
  kLocal,              ///< transformer_impl "local": norms are modules of the layer, before the attention and before the MLP
};
/// By `transformer_impl`; TransformerEngine's, Megatron's default, where it is not stored.
[[nodiscard]] LayerSpec LayerSpecOf(const Value& args);

/// Sorts the parameters of one model chunk, with layer numbers, in the order of registration.
[[nodiscard]] Result<std::vector<std::string>> InRegistrationOrder(std::vector<std::string> names, LayerSpec spec);

/// The place of one parameter in that order; places compare.
struct RegistrationPlace {
  int part = 0;            ///< 0 embedding, 1 layers, 2 final norm, 3 layers of multi-token prediction, 4 head
  std::int64_t layer = 0;
  int in_layer = 0;
  std::int64_t expert = 0; ///< of this rank
  int in_expert = 0;
  auto operator<=>(const RegistrationPlace&) const = default;
};
[[nodiscard]] Result<RegistrationPlace> PlaceOf(std::string_view name, LayerSpec spec);

}  // namespace crossdock::dialects::mcore
