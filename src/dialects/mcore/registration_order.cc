// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/registration_order.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "dialects/mcore/keys.h"
#include "dialects/mcore/legacy_keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// A layer's parameters as its modules build them: norms of their own stand before their block, fused ones in the linear layer
/// after them. No layer has both, nor two kinds of attention or of MLP, so that one list serves them all. Biases of norms belong to
/// LayerNorm models. A grouped module's matrices have one place each, where its experts follow each other, every bias behind its
/// weight; experts that are modules of their own have one place together.
constexpr std::string_view kOneByOne = "mlp.experts.local_experts.";
constexpr std::string_view kFirstOfExperts = "mlp.experts.linear_fc1.";
constexpr std::string_view kSecondOfExperts = "mlp.experts.linear_fc2.";
constexpr std::array kOfExpert = {std::string_view(".linear_fc1.weight"), std::string_view(".linear_fc1.bias"), std::string_view(".linear_fc2.weight"),
                                  std::string_view(".linear_fc2.bias")};
constexpr std::array kInLayer = {
    std::string_view("input_layernorm.weight"),
    std::string_view("input_layernorm.bias"),
    std::string_view("self_attention.dt_bias"),
    std::string_view("self_attention.A_log"),
    std::string_view("self_attention.in_proj.layer_norm_weight"),
    std::string_view("self_attention.in_proj.weight"),
    std::string_view("self_attention.conv1d.weight"),
    std::string_view("self_attention.out_norm.weight"),
    std::string_view("self_attention.out_proj.weight"),
    std::string_view("self_attention.core_attention.softmax_offset"),
    std::string_view("self_attention.linear_proj.weight"),
    std::string_view("self_attention.linear_proj.bias"),
    std::string_view("self_attention.linear_q_proj.weight"),
    std::string_view("self_attention.linear_q_down_proj.weight"),
    std::string_view("self_attention.linear_q_up_proj.layer_norm_weight"),
    std::string_view("self_attention.linear_q_up_proj.weight"),
    std::string_view("self_attention.linear_kv_down_proj.weight"),
    std::string_view("self_attention.linear_kv_up_proj.layer_norm_weight"),
    std::string_view("self_attention.linear_kv_up_proj.weight"),
    std::string_view("self_attention.linear_qkv.layer_norm_weight"),
    std::string_view("self_attention.linear_qkv.layer_norm_bias"),
    std::string_view("self_attention.linear_qkv.weight"),
    std::string_view("self_attention.linear_qkv.bias"),
    std::string_view("self_attention.q_layernorm.weight"),
    std::string_view("self_attention.q_layernorm.bias"),
    std::string_view("self_attention.k_layernorm.weight"),
    std::string_view("self_attention.k_layernorm.bias"),
    std::string_view("self_attention.kv_layernorm.weight"),
    std::string_view("self_attention.kv_layernorm.bias"),
    std::string_view("pre_mlp_layernorm.weight"),
    std::string_view("pre_mlp_layernorm.bias"),
    std::string_view("mlp.router.weight"),
    std::string_view("mlp.router.bias"),
    std::string_view("mlp.router.expert_bias"),
    kFirstOfExperts,
    kSecondOfExperts,
    kOneByOne,
    std::string_view("mlp.shared_experts.gate_weight"),
    std::string_view("mlp.shared_experts.linear_fc1.weight"),
    std::string_view("mlp.shared_experts.linear_fc2.weight"),
    std::string_view("mlp.linear_fc1.layer_norm_weight"),
    std::string_view("mlp.linear_fc1.layer_norm_bias"),
    std::string_view("mlp.linear_fc1.weight"),
    std::string_view("mlp.linear_fc1.bias"),
    std::string_view("mlp.linear_fc2.weight"),
    std::string_view("mlp.linear_fc2.bias"),
};

constexpr std::array<std::pair<std::string_view, int>, 6> kOutside = {{
    {"embedding.word_embeddings.weight", 0},
    {"embedding.position_embeddings.weight", 0},
    {"decoder.final_layernorm.weight", 2},
    {"decoder.final_layernorm.bias", 2},
    {"output_layer.weight", 4},
    {"output_layer.bias", 4},
}};

/// Of a layer of multi-token prediction, before and after the decoder layer within it.
constexpr std::array kBeforeInner = {std::string_view("enorm.weight"), std::string_view("hnorm.weight"), std::string_view("eh_proj.weight")};
constexpr std::string_view kAfterInner = "final_layernorm.weight";

/// What follows the number in "mtp.layers.<number>.rest".
std::optional<std::pair<std::int64_t, std::string_view>> MtpLayer(std::string_view name) {
  constexpr std::string_view kLayers = "mtp.layers.";
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end == name.data() + name.size() || *end != '.' || number < 0) return std::nullopt;
  name.remove_prefix(static_cast<std::size_t>(end - name.data()) + 1);
  return std::pair{number, name};
}

}  // namespace

LayerSpec LayerSpecOf(const Value& args) {
  return args.GetString("transformer_impl") == "local" ? LayerSpec::kLocal : LayerSpec::kTransformerEngine;
}

Result<RegistrationPlace> PlaceOf(std::string_view name, LayerSpec spec) {
  const auto unknown = [&]() -> Error {
    return MakeError(ErrorCode::kUnsupported, "the place of a parameter in the order of registration is not known")
        .WithTensor(std::string(name))
        .WithExpected("parameters of a GPTModel")
        .WithHint("save the run again with --dist-ckpt-optim-fully-reshardable (Megatron-Core 0.15 or newer), or leave the state behind with --no-optim");
  };
  for (std::size_t i = 0; i < kOutside.size(); ++i) {
    if (name == kOutside[i].first) return RegistrationPlace{kOutside[i].second, 0, static_cast<int>(i), 0, 0};
  }
  RegistrationPlace place{1, 0, 0, 0, 0};
  std::string_view rest;
  constexpr int kInner = static_cast<int>(kBeforeInner.size());
  if (const auto predicting = MtpLayer(name)) {
    place.part = 3;
    place.layer = predicting->first;
    rest = predicting->second;
    const auto before = std::find(kBeforeInner.begin(), kBeforeInner.end(), rest);
    place.in_layer = rest == kAfterInner ? kInner + static_cast<int>(kInLayer.size()) : static_cast<int>(before - kBeforeInner.begin());
    if (rest == kAfterInner || before != kBeforeInner.end()) return place;
    if (!rest.starts_with("mtp_model_layer.") && !rest.starts_with("transformer_layer.")) return unknown();
    rest.remove_prefix(rest.find('.') + 1);
  } else if (const std::optional<std::int64_t> layer = LayerNumber(name)) {
    place.layer = *layer;
    rest = name.substr(std::string_view("decoder.layers.").size());
    rest.remove_prefix(rest.find('.') + 1);
  } else {
    return unknown();
  }
  const bool local = spec == LayerSpec::kLocal;
  std::string known = local ? WithOwnNorms(rest) : std::string(rest);
  if (known.starts_with("mlp.experts.")) {
    const LegacyName one = ParseLegacyName(name);
    const auto part = std::ranges::find_if(kOfExpert, [&](std::string_view end) { return one.key.ends_with(end); });
    if (!one.expert || part == kOfExpert.end()) return unknown();
    place.expert = *one.expert;
    place.in_expert = static_cast<int>(part - kOfExpert.begin());
    if (known.starts_with(kOneByOne)) {
      known = kOneByOne;
    } else {
      known = place.in_expert < 2 ? kFirstOfExperts : kSecondOfExperts;
    }
  }
  const auto found = std::find(kInLayer.begin(), kInLayer.end(), known);
  if (found == kInLayer.end()) return unknown();
  place.in_layer = static_cast<int>(found - kInLayer.begin()) + (place.part == 3 ? kInner : 0);
  return place;
}

Result<std::vector<std::string>> InRegistrationOrder(std::vector<std::string> names, LayerSpec spec) {
  std::vector<std::pair<RegistrationPlace, std::string>> placed;
  placed.reserve(names.size());
  for (std::string& name : names) {
    CROSSDOCK_ASSIGN_OR_RETURN(const RegistrationPlace place, PlaceOf(name, spec));
    placed.emplace_back(place, std::move(name));
  }
  std::sort(placed.begin(), placed.end());
  std::vector<std::string> sorted;
  sorted.reserve(placed.size());
  for (auto& [place, name] : placed) sorted.push_back(std::move(name));
  return sorted;
}

}  // namespace crossdock::dialects::mcore
