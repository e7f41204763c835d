// SPDX-License-Identifier: Apache-2.0
/// The fields are those of transformers 5.24: `first_k_dense_replace` with `moe_layer_freq` (DeepSeek's own code), `mlp_only_layers`
/// with `decoder_sparse_step` (Qwen2-MoE, Qwen3-MoE), `moe_layers` (Llama 4), `layer_types` (Qwen3-Next, Qwen3.5).
#include "dialects/hf/config_kinds.h"

#include <fmt/format.h>

#include <algorithm>

namespace crossdock::dialects::hf {
namespace {

std::string Bits(const std::vector<bool>& layers) {
  std::string text;
  for (const bool one : layers) text += one ? '1' : '0';
  return text;
}

bool Says(const family::FamilyFile& family, const family::Model& model, const Value& config) {
  const auto layers = model.letters.find("layers");
  if (layers == model.letters.end()) return true;
  const auto kinds = family::EvaluateKinds(family, {"hf", config}, layers->second);
  return kinds && *kinds == model.kinds;
}

}  // namespace

Status PatchKinds(const family::FamilyFile& family, const family::Model& model, Value* config) {
  if (model.kinds.empty() || Says(family, model, *config)) return OkStatus();
  if (const auto full = model.kinds.find("full"); full != model.kinds.end()) {
    ValueList types;
    for (const bool one : full->second) types.emplace_back(one ? "full_attention" : "linear_attention");
    config->Set("layer_types", Value::MakeList(std::move(types)));
  }
  const auto moe = model.kinds.find("moe");
  const auto rules = family.layer_kinds.find("moe");
  if (moe != model.kinds.end() && rules != family.layer_kinds.end() && rules->second.contains("hf")) {
    const std::string& rule = rules->second.at("hf");
    const std::vector<bool>& layers = moe->second;
    if (rule.find("first_k_dense_replace") != std::string::npos) {
      const auto first = std::find(layers.begin(), layers.end(), true) - layers.begin();
      config->Set("first_k_dense_replace", Value(static_cast<std::int64_t>(first)));
      if (rule.find("moe_layer_freq") != std::string::npos) config->Set("moe_layer_freq", Value(1));
    } else if (rule.find("mlp_only_layers") != std::string::npos) {
      ValueList dense;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        if (!layers[i]) dense.emplace_back(static_cast<std::int64_t>(i));
      }
      config->Set("mlp_only_layers", Value::MakeList(std::move(dense)));
      config->Set("decoder_sparse_step", Value(1));
    } else if (rule.find("moe_layers") != std::string::npos) {
      ValueList with;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        if (layers[i]) with.emplace_back(static_cast<std::int64_t>(i));
      }
      config->Set("moe_layers", Value::MakeList(std::move(with)));
    }
  }
  if (Says(family, model, *config)) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, fmt::format("config.json of the family {} has no field that says which layers have experts", family.name))
      .WithExpected("the layers that its fields can name")
      .WithFound(moe == model.kinds.end() ? "layers of another kind" : "layers with experts (1): " + Bits(moe->second))
      .WithHint("give the original's directory with --hf-template DIR");
}

}  // namespace crossdock::dialects::hf
