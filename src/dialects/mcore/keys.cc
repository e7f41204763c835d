// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/keys.h"

#include <charconv>
#include <span>
#include <utility>

#include "base/digits.h"

namespace crossdock::dialects::mcore {
namespace {

std::string_view StripChained(std::string_view key) {
  constexpr std::string_view kChained = "chained_";
  if (!key.starts_with(kChained)) return key;
  std::size_t at = kChained.size();
  while (at < key.size() && IsDigit(key[at])) ++at;
  if (at == kChained.size() || at >= key.size() || key[at] != '.') return key;
  return key.substr(at + 1);
}

constexpr std::pair<std::string_view, std::string_view> kNorms[] = {   // of its own, fused
    {"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
    {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"},
};

constexpr std::pair<std::string_view, std::string_view> kLatentNorms[] = {
    {"q_layernorm.", "linear_q_up_proj.layer_norm_"},
    {"kv_layernorm.", "linear_kv_up_proj.layer_norm_"},
};

/// `name` with `from` replaced, where it stands at the start or after a dot.
std::string Respelled(std::string_view name, std::string_view from, std::string_view to) {
  const std::size_t at = name.rfind(from);
  if (at == std::string_view::npos || (at != 0 && name[at - 1] != '.')) return std::string(name);
  return std::string(name.substr(0, at)).append(to).append(name.substr(at + from.size()));
}

std::optional<Slot> SlotOfState(std::string_view state) {
  if (state == "param" || state == "fp32_param") return Slot::kMaster;
  if (state == "exp_avg") return Slot::kAdamMu;
  if (state == "exp_avg_sq") return Slot::kAdamNu;
  if (state == "momentum_buffer") return Slot::kMuonMu;
  return std::nullopt;
}

}  // namespace

TensorKey ParseTensorKey(std::string_view key) {
  TensorKey out;
  const std::string_view rest = StripChained(key);
  constexpr std::string_view kState = "optimizer.state.";
  if (rest.starts_with("optimizer.distributed.")) {
    out.kind = TensorKey::Kind::kBucket;
    return out;
  }
  if (rest.starts_with(kState)) {
    const std::string_view after = rest.substr(kState.size());
    const std::size_t dot = after.find('.');
    out.kind = dot == std::string_view::npos ? TensorKey::Kind::kOther : TensorKey::Kind::kState;
    if (dot == std::string_view::npos) return out;
    out.state = std::string(after.substr(0, dot));
    out.slot = SlotOfState(out.state);
    out.model_key = std::string(after.substr(dot + 1));
    out.prefix = std::string(key.substr(0, key.size() - out.model_key.size()));
    return out;
  }
  if (rest.starts_with("optimizer.") || rest.starts_with("optimizer_")) {
    out.kind = TensorKey::Kind::kOther;
    return out;
  }
  out.slot = Slot::kParam;
  out.model_key = std::string(key);
  return out;
}

std::string WithFusedNorms(std::string_view name) {
  std::string out(name);
  for (const auto& [own, fused] : kNorms) out = Respelled(out, own, fused);
  return out;
}

std::string WithOwnNorms(std::string_view name) {
  std::string out(name);
  for (const auto& [own, fused] : kNorms) out = Respelled(out, fused, own);
  return out;
}

std::string WithOwnLatentNorms(std::string_view name) {
  std::string out(name);
  for (const auto& [own, fused] : kLatentNorms) out = Respelled(out, fused, own);
  return out;
}

bool HasExpertNumber(std::string_view model_key) {
  constexpr std::string_view kExperts = ".experts.experts.";
  const std::size_t at = model_key.find(kExperts);
  return at != std::string_view::npos && at + kExperts.size() < model_key.size() && IsDigit(model_key[at + kExperts.size()]);
}

std::vector<std::string> OtherSpellings(std::string_view name) {
  std::vector<std::string> others;
  const auto add = [&](std::string other) {
    if (other != name) others.push_back(std::move(other));
  };
  constexpr std::pair<std::string_view, std::string_view> kInnerLayer[] = {{"transformer_layer.", "mtp_model_layer."}};  // the module, and a hybrid model's file
  using Table = std::span<const std::pair<std::string_view, std::string_view>>;
  for (const Table& table : {Table(kNorms), Table(kLatentNorms), Table(kInnerLayer)}) {
    for (const auto& [own, fused] : table) {
      add(Respelled(name, own, fused));
      add(Respelled(name, fused, own));
    }
  }
  return others;
}

std::string SlotKey(Slot slot, std::string_view model_key, OptimizerForm form) {
  switch (slot) {
    case Slot::kMaster: return (form == OptimizerForm::kPlain ? "optimizer.state.fp32_param." : "optimizer.state.param.") + std::string(model_key);
    case Slot::kAdamMu: return "optimizer.state.exp_avg." + std::string(model_key);
    case Slot::kAdamNu: return "optimizer.state.exp_avg_sq." + std::string(model_key);
    case Slot::kMuonMu: return "optimizer.state.momentum_buffer." + std::string(model_key);
    default: return std::string(model_key);
  }
}

ObjectKind ClassifyObject(std::string_view name) {
  if (name.find("_extra_state") != std::string_view::npos) return ObjectKind::kExtraState;
  if (name.starts_with("rng_state")) return ObjectKind::kRng;
  if (name.starts_with("rerun_state")) return ObjectKind::kRerun;
  if (name.starts_with("common_state")) return ObjectKind::kCommon;
  if (StripChained(name).starts_with("optimizer")) return ObjectKind::kOptimizer;
  return ObjectKind::kOther;
}

std::string_view WithinLanguageModel(std::string_view model_key) {
  for (const std::string_view prefix : {std::string_view("language_model."), std::string_view("foundation_model.")}) {
    if (model_key.starts_with(prefix)) return model_key.substr(prefix.size());
  }
  return model_key;
}

bool IsVision(std::string_view model_key) { return model_key.starts_with("vision_model.") || model_key.starts_with("visual.") || model_key.starts_with("encoder_model."); }

bool IsStackOfTower(std::string_view model_key) {
  return model_key.starts_with("vision_model.decoder.") || model_key.starts_with("encoder_model.image_encoder.decoder.layers.") ||
         model_key.starts_with("encoder_model.image_encoder.encoder.layers.");
}

std::optional<std::int64_t> LayerNumber(std::string_view model_key) {
  model_key = WithinLanguageModel(model_key);
  if (!model_key.starts_with(kLayersPrefix)) return std::nullopt;
  const std::string_view rest = model_key.substr(kLayersPrefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc{} || end == rest.data() + rest.size() || *end != '.' || number < 0) return std::nullopt;
  return number;
}

std::string WithoutLayerNumber(std::string_view model_key) {
  const std::size_t number = model_key.size() - WithinLanguageModel(model_key).size() + kLayersPrefix.size();
  return std::string(model_key.substr(0, number)).append(model_key.substr(model_key.find('.', number) + 1));
}

bool HasLayerAxis(std::string_view model_key) { return WithinLanguageModel(model_key).starts_with(kLayersPrefix) && !LayerNumber(model_key); }

}  // namespace crossdock::dialects::mcore
