// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/config_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include "dialects/hf/config_check.h"
#include "dialects/hf/mtp.h"
#include "dialects/maxtext/tree_config.h"
#include "family/detect.h"
#include "family/formula.h"

namespace crossdock::dialects::maxtext {
namespace {

constexpr const char* kTemplateHint = "give the model's config.json with --hf-template DIR";

std::vector<const family::FamilyFile*> AllFamilies() {
  std::vector<const family::FamilyFile*> families;
  for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
  return families;
}

/// What MaxText calls parts that one family alone has; the first row whose part is there counts.
struct ByName {
  const char* part;
  const char* family;
};
constexpr std::array kByName = {
    ByName{"GptOssAttention.", "gpt_oss"},        ByName{"Llama4MoEBlock_0.", "llama4"},
    ByName{"decoder.layers.local_layers.", "qwen3_next"},
    ByName{"DeepSeekMoeBlock_0.MoeBlock_0.gate.bias", "deepseek_v3"},
    ByName{"DeepSeekMoeBlock_0.", "deepseek_v2"}, ByName{"moe_block.", "qwen3_moe"},
    ByName{"MoeBlock_0.", "mixtral"},             ByName{"self_attention_local.", "gemma2"},
    ByName{"pre_ffw_norm.", "gemma3"},            ByName{"post_mlp_layer_norm.", "olmo3"},
    ByName{"self_attention.query.bias", "qwen2"}, ByName{"self_attention.query_norm.", "qwen3"},
};

Result<const family::FamilyFile*> ByNames(const Inventory& inventory, std::vector<std::string>* notices) {
  for (const ByName& row : kByName) {
    if (!inventory.Holds(row.part)) continue;
    const family::FamilyFile* family = family::FindFamily(row.family, AllFamilies());
    if (family == nullptr) break;
    notices->push_back(fmt::format("family {} is assumed: the checkpoint stores no configuration, and holds {} (--family NAME overrides)", row.family, row.part));
    return family;
  }
  return MakeError(ErrorCode::kIncomplete, "the checkpoint stores no configuration, and its names fit several families, whose values differ")
      .WithExpected("the family by --family (llama or mistral; qwen3_next or qwen3_5_moe), or a configuration")
      .WithFound(fmt::format("{} tensors without a name that one family alone has", inventory.tensors.size()))
      .WithHint(kTemplateHint);
}

/// "true", "3", "0.5" or a text.
Value ParseSetting(const std::string& text) {
  if (text == "true" || text == "false") return {text == "true"};
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size()) return {number};
  return {text};
}

Error NotTold(const std::string& setting, const std::string& rule) {
  return MakeError(ErrorCode::kIncomplete, fmt::format("nothing in the checkpoint tells MaxText's setting {}, on which the order of values depends", setting))
      .WithExpected(fmt::format("the setting of the run ({})", rule))
      .WithHint(fmt::format("{}, or its {} with --set {}=VALUE", kTemplateHint, setting, setting));
}

/// These show in the tree: a size that is absent from it is absent from the model.
bool ShowsInTree(const std::string& setting) {
  constexpr std::array<std::string_view, 3> kShown = {"logits_via_embedding", "q_lora_rank", "shared_experts"};
  return std::find(kShown.begin(), kShown.end(), setting) != kShown.end();
}

/// Some conditions and sizes show in no shape: they must have been said. What config.json's silence means is no word of MaxText's.
Status CheckSaid(const family::FamilyFile& family, const Value& config) {
  for (const auto& [letter, rule] : family.letters) {
    const auto places = rule.paths.find("maxtext");
    if (rule.fallback.empty() || places == rule.paths.end()) continue;   // without a default its absence is an error of its own
    const auto told = [&](const std::string& place) { return config.Find(place) != nullptr || ShowsInTree(place); };
    if (std::none_of(places->second.begin(), places->second.end(), told)) return NotTold(places->second.front(), "letter " + letter);
  }
  for (const auto& [word, rules] : family.conditions) {
    const auto rule = rules.find("maxtext");
    if (rule == rules.end()) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(const family::Formula formula, family::ParseFormula(rule->second));
    for (const std::string& name : family::NamesOf(formula)) {
      if (config.Find(name) == nullptr && !ShowsInTree(name)) return NotTold(name, rule->second);
    }
  }
  return OkStatus();
}

}  // namespace

Result<ChosenConfig> ChooseConfig(const Catalog& catalog, const ReadOptions& options, const Inventory& inventory) {
  ChosenConfig chosen;
  std::optional<family::ModelConfig> config;
  if (const auto carried = catalog.objects.find("hf/config.json"); carried != catalog.objects.end()) {
    chosen.origin = "hf/config.json";
    config = family::ModelConfig{"hf", carried->second};
    CROSSDOCK_RETURN_IF_ERROR(hf::CheckConfigFields(carried->second, chosen.origin));
  } else if (options.template_config) {
    chosen.origin = "the template's config.json";
    config = options.template_config;
  }
  chosen.family = options.family;
  if (chosen.family == nullptr && config) {
    CROSSDOCK_ASSIGN_OR_RETURN(chosen.family, family::DetectByConfig(*config, AllFamilies()));
  } else if (chosen.family == nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(chosen.family, ByNames(inventory, &chosen.notices));
  }
  if (!config) {
    chosen.origin = "the shapes of the arrays";
    Value values = ConfigFromTree(catalog, inventory, options.scan_axis.value_or(1));
    for (const auto& [key, text] : options.set_args) values.Set(key, ParseSetting(text));
    CROSSDOCK_RETURN_IF_ERROR(CheckSaid(*chosen.family, values));
    config = family::ModelConfig{"maxtext", std::move(values)};
  }
  Result<family::Model> model = family::EvaluateModel(*chosen.family, *config);
  if (!model) return std::move(std::move(model).error()).WithPath(chosen.origin);
  chosen.model = *std::move(model);
  chosen.config = *std::move(config);
  // The tree holds them or not; most models of MaxText have no place for the layers of multi-token prediction.
  CROSSDOCK_RETURN_IF_ERROR(hf::AgreeOnMtp(*chosen.family, inventory.PredictionLayers(), chosen.origin, &chosen.config, &chosen.model, &chosen.notices));
  return chosen;
}

}  // namespace crossdock::dialects::maxtext
