// SPDX-License-Identifier: Apache-2.0
#include "family/detect.h"

#include <algorithm>

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
  const char* obstacle = facts.mla       ? "multi-latent attention (linear_kv_up_proj)"
                         : facts.experts ? "experts (mlp.router, mlp.experts)"
                         : facts.qk_layernorm && facts.qkv_bias ? "both q/k norms and qkv biases"
                                                                : nullptr;
  if (obstacle != nullptr) {
    return MakeError(ErrorCode::kUnsupported, "the checkpoint names no architecture, and no built-in family has its tensors")
        .WithExpected(fmt::format("one of {}", Names(families)))
        .WithFound(obstacle)
        .WithHint(hint);
  }
  const char* name = facts.qk_layernorm ? "qwen3" : facts.qkv_bias ? "qwen2" : "llama";
  const char* why = facts.qk_layernorm ? "it has q/k norms" : facts.qkv_bias ? "it has qkv biases" : "it has neither q/k norms nor qkv biases";
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
