// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/keys.h"
#include "dialects/mcore/legacy_keys.h"

#include <array>
#include <charconv>
#include <utility>

namespace crossdock::dialects::mcore {
namespace {

using Renaming = std::pair<std::string_view, std::string_view>;

/// Of a layer's parameter: the first row whose left side begins the name.
constexpr std::array kOldLayerNames = {
    Renaming{"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
    Renaming{"input_norm.", "self_attention.linear_qkv.layer_norm_"},
    Renaming{"post_attention_layernorm.", "mlp.linear_fc1.layer_norm_"},
    Renaming{"post_attention_norm.", "mlp.linear_fc1.layer_norm_"},
    Renaming{"self_attention.query_key_value.", "self_attention.linear_qkv."},
    Renaming{"attention.query_key_value.", "self_attention.linear_qkv."},
    Renaming{"self_attention.dense.", "self_attention.linear_proj."},
    Renaming{"attention.dense.", "self_attention.linear_proj."},
    Renaming{"mlp.dense_h_to_4h.", "mlp.linear_fc1."},
    Renaming{"mlp.dense_4h_to_h.", "mlp.linear_fc2."},
};
constexpr std::array kOldTopNames = {
    Renaming{"final_layernorm.", "decoder.final_layernorm."},
    Renaming{"final_norm.", "decoder.final_layernorm."},
};

template <std::size_t N>
std::string Renamed(std::string_view name, const std::array<Renaming, N>& rows) {
  for (const auto& [from, to] : rows) {
    if (name.starts_with(from)) return std::string(to) + std::string(name.substr(from.size()));
  }
  return std::string(name);
}

/// Splits "<number>.<rest>".
std::optional<std::pair<std::int64_t, std::string_view>> Numbered(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0 || end == text.data() + text.size() || *end != '.') return std::nullopt;
  return std::pair{number, text.substr(static_cast<std::size_t>(end - text.data()) + 1)};
}

/// A number that ends the text.
std::optional<std::int64_t> LastNumber(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0 || end != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr std::string_view kAllExperts = "mlp.experts.experts.";   // in torch_dist: the module, then all of its experts

/// Finds the expert in a name with `mlp.experts.`, and makes the key that torch_dist has for all experts of the layer.
void FindExpert(LegacyName* name) {
  constexpr std::string_view kExperts = "mlp.experts.";
  constexpr std::string_view kOneByOne = "local_experts.";
  const std::size_t at = name->key.find(kExperts);
  if (at == std::string::npos) return;
  const std::string before = name->key.substr(0, at);
  const std::string rest = name->key.substr(at + kExperts.size());
  if (rest.starts_with(kOneByOne)) {
    if (const auto inner = Numbered(std::string_view(rest).substr(kOneByOne.size()))) {
      name->expert = inner->first;
      name->key = before + std::string(kAllExperts) + std::string(inner->second);
    }
  } else if (rest == "weight1" || rest == "weight2") {
    name->all_experts = true;
    name->key = before + std::string(kAllExperts) + (rest == "weight1" ? "linear_fc1.weight" : "linear_fc2.weight");
  } else {
    const std::size_t number = rest.find_last_not_of("0123456789") + 1;
    if (const auto expert = LastNumber(std::string_view(rest).substr(number)); expert && number > 0) {
      name->expert = expert;
      name->key = before + std::string(kAllExperts) + rest.substr(0, number);
    }
  }
}

LegacyName OldName(std::string_view name) {
  LegacyName out;
  out.old = true;
  for (const std::string_view stack : {"encoder.", "transformer."}) {
    if (!name.starts_with(stack)) continue;
    const std::string_view inner = name.substr(stack.size());
    constexpr std::string_view kLayers = "layers.";
    if (const auto layer = inner.starts_with(kLayers) ? Numbered(inner.substr(kLayers.size())) : std::nullopt) {
      out.layer = layer->first;
      out.key = Renamed(layer->second, kOldLayerNames);
    } else {
      out.key = Renamed(inner, kOldTopNames);
    }
    return out;
  }
  out.key = std::string(name);  // embedding., output_layer.
  return out;
}

}  // namespace

bool IsOfLargerModel(std::string_view name) { return IsVision(name) || WithinLanguageModel(name).starts_with(kLayersPrefix) != name.starts_with(kLayersPrefix); }

LegacyName ParseLegacyName(std::string_view name, bool larger) {
  if (larger) {
    const std::string_view inner = WithinLanguageModel(name);
    LegacyName out;
    out.key = std::string(name);
    if (inner.size() != name.size()) out = ParseLegacyName(inner);
    out.prefix = std::string(name.substr(0, name.size() - inner.size()));
    return out;
  }
  constexpr std::string_view kOld = "language_model.";
  if (name.starts_with(kOld)) return OldName(name.substr(kOld.size()));
  LegacyName out;
  if (name == "word_embeddings_for_head.weight" || name == "word_embeddings.weight") {  // beside language_model, on the last stage
    out.key = "output_layer.weight";
    out.old = true;
    out.head_copy = true;
    return out;
  }
  if (const auto layer = name.starts_with(kLayersPrefix) ? Numbered(name.substr(kLayersPrefix.size())) : std::nullopt) {
    out.layer = layer->first;
    out.key = std::string(layer->second);
  } else {
    out.key = std::string(name);
    constexpr std::string_view kInner = ".mtp_model_layer.";   // its name in the module since 0.17; torch_dist keeps the older one
    const std::size_t inner = out.key.starts_with("mtp.layers.") ? out.key.find(kInner) : std::string::npos;
    if (inner != std::string::npos) out.key.replace(inner, kInner.size(), ".transformer_layer.");
  }
  FindExpert(&out);
  return out;
}

}  // namespace crossdock::dialects::mcore
