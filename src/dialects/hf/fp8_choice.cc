// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_choice.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "base/digits.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

/// Anywhere in a name, case and all. `mlp.gate.` has both dots, or it would hit `mlp.gate_proj`.
constexpr std::array<std::string_view, 15> kWords = {"layernorm", "embed",  "router", "mlp.gate.",   "norm",        "lm_head",            "eh_proj", "weights_proj",
                                                     "conv1d",    "A_log",  "dt_bias", "in_proj_a",   "in_proj_b",   "shared_expert_gate", "visual"};

/// Whole parts of a name: routers of Mixtral (`block_sparse_moe.gate`) and others, the head of a prediction layer
/// (`shared_head.head`), what joins a tower to the text (InternVL's `mlp1`).
constexpr std::array<std::string_view, 11> kParts = {"gate",   "router",  "head", "score", "classifier", "mlp1", "merger", "projector", "mm_projector", "multi_modal_projector",
                                                     "patch_embed"};

/// Beginnings of parts: `vision_tower`, `vision_model`, `audio_tower`, `image_encoder`.
constexpr std::array<std::string_view, 4> kTowers = {"vision", "visual", "audio", "image_"};

struct FamilyName {
  std::string_view family;
  const char* pattern;   ///< of the written name
};
constexpr std::array kOfFamilies = {
    FamilyName{"internlm2", "output.weight"},                                // the head
    FamilyName{"internvl_chat_internlm2", "language_model.output.weight"},
    FamilyName{"ling3", "*.attention.[bfg]_proj.weight"},                    // decay, step and output gates of linear attention
};

/// Layers that vLLM and SGLang load into one; `as` is what they call it.
struct Joined {
  std::string_view part, as;
};
constexpr std::array kJoined = {
    Joined{"q_proj", "qkv"},        Joined{"k_proj", "qkv"},     Joined{"v_proj", "qkv"},
    Joined{"gate_proj", "gate_up"}, Joined{"up_proj", "gate_up"},
    Joined{"w1", "w13"},            Joined{"w3", "w13"},
    Joined{"q_a_proj", "qkv_a"},    Joined{"kv_a_proj_with_mqa", "qkv_a"},
    Joined{"in_proj_qkv", "in_proj_qkvz"}, Joined{"in_proj_z", "in_proj_qkvz"},  // DeltaNet
    Joined{"in_proj_b", "in_proj_ba"},     Joined{"in_proj_a", "in_proj_ba"},
};

template <typename F>
bool AnyPart(std::string_view name, const F& test) {
  while (true) {
    const std::size_t dot = name.find('.');
    if (test(name.substr(0, dot))) return true;
    if (dot == std::string_view::npos) return false;
    name.remove_prefix(dot + 1);
  }
}

}  // namespace

std::string_view ModuleOf(std::string_view name) {
  return name.ends_with(kWeightEnd) ? name.substr(0, name.size() - kWeightEnd.size()) : name;
}

std::string_view LastPart(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}

bool IsLinearWeight(const Entry& entry) {
  const bool type_fits = entry.dtype == DType::kBF16 || entry.dtype == DType::kF16 || entry.dtype == DType::kF32;
  return type_fits && entry.shape.size() == 2 && CheckedCount(entry.shape) != 0 && std::string_view(entry.name).ends_with(kWeightEnd);
}

bool StaysUnquantized(const family::FamilyFile& family, std::string_view name) {
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (std::ranges::any_of(kWords, has)) return true;
  const auto is_kept = [](std::string_view part) {
    return std::ranges::find(kParts, part) != kParts.end() || std::ranges::any_of(kTowers, [&](std::string_view tower) { return part.starts_with(tower); });
  };
  if (AnyPart(ModuleOf(name), is_kept)) return true;
  const std::string whole(name);
  return std::ranges::any_of(kOfFamilies, [&](const FamilyName& one) { return family.name == one.family && ::fnmatch(one.pattern, whole.c_str(), 0) == 0; });
}

std::string JoinedAs(std::string_view name) {
  constexpr std::string_view kOfExperts = ".experts.";
  const std::size_t experts = name.find(kOfExperts);
  if (experts != std::string_view::npos) {
    const std::string_view rest = name.substr(experts + kOfExperts.size());
    if (OnlyDigits(rest.substr(0, rest.find('.')))) return std::string(name.substr(0, experts + kOfExperts.size() - 1));
  }
  const std::string_view module = ModuleOf(name);
  const std::string_view part = LastPart(module);
  const auto* joined = std::ranges::find(kJoined, part, &Joined::part);
  if (joined == kJoined.end()) return {};
  return std::string(module.substr(0, module.size() - part.size())) + std::string(joined->as);
}

}  // namespace crossdock::dialects::hf
