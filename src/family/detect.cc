// SPDX-License-Identifier: Apache-2.0
#include "family/detect.h"

#include <algorithm>
#include <array>

#include "family/formula.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::family {
namespace {

std::string Names(const std::vector<const FamilyFile*>& families) {
  std::vector<std::string> names;
  for (const FamilyFile* family : families) names.push_back(family->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string Architectures(const std::vector<const FamilyFile*>& families) {
  std::vector<std::string> names;
  for (const FamilyFile* family : families) names.insert(names.end(), family->architectures.begin(), family->architectures.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

/// What tells a Megatron checkpoint's family when nothing names it.
struct ByFacts {
  McoreFacts facts;
  const char* family;
  const char* why;
};
constexpr std::array kByFacts = {
    ByFacts{{}, "llama", "it has neither q/k norms nor qkv biases"},
    ByFacts{{.qk_layernorm = true}, "qwen3", "it has q/k norms"},
    ByFacts{{.qkv_bias = true}, "qwen2", "it has qkv biases"},
    ByFacts{{.qk_layernorm = true, .vision = true}, "qwen3_vl", "it has a vision tower and q/k norms"},
    ByFacts{{.qk_layernorm = true, .experts = true, .vision = true}, "qwen3_vl_moe", "it has a vision tower, q/k norms and experts"},
    ByFacts{{.qkv_bias = true, .vision = true}, "qwen2_5_vl", "it has a vision tower and qkv biases"},
    ByFacts{{.qk_layernorm = true, .gated_delta = true}, "qwen3_5", "it has layers of a gated delta net and no experts"},
    ByFacts{{.qk_layernorm = true, .vision = true, .gated_delta = true}, "qwen3_5_vl", "it has a vision tower, layers of a gated delta net and no experts"},
    ByFacts{{.qk_layernorm = true, .experts = true, .shared_gate = true, .shared_experts = true, .vision = true, .gated_delta = true}, "qwen3_5_vl_moe", "it has a vision tower, layers of a gated delta net and experts"},
    ByFacts{{.experts = true}, "mixtral", "it has experts, and neither q/k norms nor shared experts"},
    ByFacts{{.qk_layernorm = true, .experts = true}, "qwen3_moe", "it has q/k norms and experts"},
    ByFacts{{.qkv_bias = true, .experts = true, .shared_gate = true, .shared_experts = true}, "qwen2_moe", "it has qkv biases and a gated shared expert"},
    ByFacts{{.experts = true, .mla = true, .shared_experts = true}, "deepseek_v2", "it has multi-latent attention and shared experts"},
    ByFacts{{.experts = true, .mla = true, .expert_bias = true, .shared_experts = true}, "deepseek_v3", "it has multi-latent attention and a bias of the router"},
};

std::string Found(const McoreFacts& facts) {
  std::vector<const char*> found;
  if (facts.vision) found.push_back("a vision tower");
  if (facts.gated_delta) found.push_back("layers of a gated delta net (self_attention.in_proj; qwen3_next and qwen3_5_moe differ in their Hugging Face names only)");
  if (facts.mla) found.push_back("multi-latent attention (linear_kv_up_proj)");
  if (facts.experts) found.push_back("experts (mlp.router, mlp.experts)");
  if (facts.shared_experts) found.push_back("shared experts");
  if (facts.shared_gate) found.push_back("a gate of the shared experts");
  if (facts.expert_bias) found.push_back("a bias of the router");
  if (facts.qk_layernorm) found.push_back("q/k norms");
  if (facts.qkv_bias) found.push_back("qkv biases");
  return fmt::format("{}", fmt::join(found, " and "));
}

std::vector<std::string> ArchitecturesOf(const ModelConfig& config) {
  std::vector<std::string> names;
  const Value* list = config.values.Find("architectures");
  const ValueList* items = list != nullptr ? list->as_sequence() : nullptr;
  if (items == nullptr) return names;
  for (const Value& item : *items) {
    if (const std::string* name = item.as_string()) names.push_back(*name);
  }
  return names;
}

}  // namespace

const FamilyFile* FindFamily(std::string_view name, const std::vector<const FamilyFile*>& families) {
  for (const FamilyFile* family : families) {
    if (family->name == name) return family;
  }
  return nullptr;
}

Result<const FamilyFile*> DetectByConfig(const ModelConfig& config, const std::vector<const FamilyFile*>& families) {
  const std::vector<std::string> architectures = ArchitecturesOf(config);
  const std::string model_type = config.values.GetString("model_type").value_or("");
  std::vector<const FamilyFile*> matches;
  for (const FamilyFile* family : families) {
    const bool named = architectures.empty()
                           ? !model_type.empty() && family->model_type == model_type
                           : std::any_of(architectures.begin(), architectures.end(), [&](const std::string& name) {
                               return std::find(family->architectures.begin(), family->architectures.end(), name) != family->architectures.end();
                             });
    if (!named) continue;
    if (!family->when.empty()) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool holds, EvaluateCondition(family->when, config.values));
      if (!holds) continue;
    }
    matches.push_back(family);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.size() > 1) {
    return MakeError(ErrorCode::kUnsupported, "the configuration fits more than one family")
        .WithFound(Names(matches))
        .WithHint("choose one with --family NAME");
  }
  const std::string found = !architectures.empty() ? fmt::format("{}", fmt::join(architectures, ", "))
                            : !model_type.empty()  ? fmt::format("model_type {}", model_type)
                                                   : "neither architectures nor model_type";
  return MakeError(ErrorCode::kUnsupported, "no family file describes this architecture")
      .WithExpected(fmt::format("one of {}", Architectures(families)))
      .WithFound(Printable(found))
      .WithHint("if it has the same tensors as a supported family, name that with --family; or give a family file with --rules FILE");
}

Result<const FamilyFile*> DetectByFacts(const McoreFacts& facts, const std::vector<const FamilyFile*>& families, std::string* notice) {
  const char* hint = "name the family with --family, or give a family file with --rules FILE";
  const auto row = std::find_if(kByFacts.begin(), kByFacts.end(), [&](const ByFacts& one) { return one.facts == facts; });
  if (row == kByFacts.end()) {
    return MakeError(ErrorCode::kUnsupported, "the checkpoint names no architecture, and no built-in family has its tensors")
        .WithExpected(fmt::format("one of {}", Names(families)))
        .WithFound(Found(facts))
        .WithHint(hint);
  }
  const char* name = row->family;
  const char* why = row->why;
  const FamilyFile* family = FindFamily(name, families);
  if (family == nullptr) {
    return MakeError(ErrorCode::kUnsupported, fmt::format("the checkpoint looks like {}, which is no known family here", name)).WithHint(hint);
  }
  if (notice != nullptr) {
    *notice = fmt::format("family {} is assumed: the checkpoint names no architecture, and {} (--family NAME overrides)", name, why);
  }
  return family;
}

}  // namespace crossdock::family
