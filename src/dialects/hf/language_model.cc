// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "dialects/hf/config_patch.h"
#include "family/text_config.h"

namespace crossdock::dialects::hf {
namespace {

/// Of the whole model, and nothing to a language model.
constexpr std::array kOfTheWhole = {"vision_config",    "image_token_id",       "video_token_id",     "vision_start_token_id", "vision_end_token_id", "vision_token_id",
                                    "image_seq_length", "downsample_ratio",     "projector_hidden_act", "vision_feature_layer", "vision_feature_select_strategy",
                                    "auto_map",         "ps_version",           "select_layer",       "force_image_size",      "dynamic_image_size",  "max_dynamic_patch",
                                    "min_dynamic_patch", "use_thumbnail",       "template",           "use_backbone_lora",     "use_llm_lora",        "pad2square"};

void DropSections(Value* config) {
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    const Value* rope = config->Find(place);
    if (rope == nullptr || rope->as_dict() == nullptr) continue;
    Value plain = *rope;
    plain.Erase("mrope_section");
    plain.Erase("mrope_interleaved");
    for (const char* type : {"rope_type", "type"}) {
      if (plain.GetString(type) == "mrope") plain.Set(type, Value("default"));
    }
    const bool scales = std::string_view(place) == "rope_parameters" || plain.GetString("rope_type").value_or(plain.GetString("type").value_or("default")) != "default";
    if (scales) {
      config->Set(place, std::move(plain));
    } else {
      config->Set(place, Value());
    }
  }
}

}  // namespace

bool IsLanguageModelOf(const family::FamilyFile& text, const family::FamilyFile& whole) { return whole.language_model && whole.language_model->family == text.name; }

family::ModelConfig LanguageModelConfig(const family::FamilyFile& text, const family::FamilyFile& whole, const family::ModelConfig& config) {
  family::ModelConfig out = family::TextConfig(whole, config);
  if (config.words == "mcore") {
    for (const auto& [argument, place] : whole.arguments) {
      if (!text.arguments.contains(argument)) out.values.Erase(argument);
    }
    if (out.values.GetString("position_embedding_type") == "mrope") out.values.Set("position_embedding_type", Value("rope"));
    out.values.Erase("mrope_section");
    return out;
  }
  for (const char* key : kOfTheWhole) out.values.Erase(key);
  for (const std::string& part : whole.text_config) out.values.Erase(part);
  Value architectures = Value::MakeList();
  if (!text.architectures.empty()) architectures.mutable_sequence()->emplace_back(text.architectures.front());
  out.values.Set("architectures", std::move(architectures));
  out.values.Set("model_type", Value(text.model_type));
  DropSections(&out.values);
  for (const auto& [argument, place] : text.arguments) {  // what the larger model always does stands in the part's configuration
    const auto always = whole.mcore_flags.find(argument);
    if (always == whole.mcore_flags.end() || text.mcore_flags.contains(argument)) continue;
    const bool opposite = place.starts_with('!');
    if (always->second == "true" || always->second == "false") SetPath(&out.values, opposite ? place.substr(1) : place, Value((always->second == "true") != opposite));
  }
  return out;
}

std::vector<std::string> LanguageModelNames(const family::FamilyFile& whole, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (std::optional<std::string> alone = whole.language_model->Alone(name)) out.push_back(*std::move(alone));
  }
  return out;
}

void LeaveProcessorFiles(std::vector<SideFile>* files, std::vector<LeftOut>* left_out) {
  std::erase_if(*files, [&](const SideFile& file) {
    const bool processor = file.path.ends_with("preprocessor_config.json") || file.path == "processor_config.json";
    if (processor && left_out != nullptr) left_out->push_back({file.path, "belongs to the image processor", 1, 0});
    return processor;
  });
}

Status TakeLanguageModel(const family::FamilyFile& text, HubState* hub) {
  const family::FamilyFile& whole = *hub->family;
  if (!IsLanguageModelOf(text, whole)) {
    return MakeError(ErrorCode::kUnsupported, fmt::format("the family {} has no language model of the family {}", whole.name, text.name));
  }
  family::ModelConfig config = LanguageModelConfig(text, whole, hub->config);
  CROSSDOCK_ASSIGN_OR_RETURN(family::Model model, family::EvaluateModel(text, config));
  family::BindOptions options;
  options.dialect = "hf";
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, family::Bind(text, model, options));
  std::set<std::string_view> kept;
  for (const family::HubTensor& tensor : binding.hub) kept.insert(tensor.name);
  const auto alone = [&](const std::string& name) -> std::optional<std::string> {
    std::optional<std::string> own = whole.language_model->Alone(name);
    return own && kept.contains(*own) ? own : std::nullopt;
  };
  LeftOut left{"the vision tower and what joins it to the language model", fmt::format("left behind by --family {}", text.name), 0, 0};
  std::erase_if(hub->tensors, [&](HubTensor& tensor) {
    if (std::optional<std::string> own = alone(tensor.name)) {
      tensor.name = *std::move(own);
      return false;
    }
    const auto bytes = ByteSize(tensor.dtype, tensor.shape);
    left.bytes += bytes ? *bytes : 0;
    ++left.count;
    return true;
  });
  std::ranges::sort(hub->tensors, [](const HubTensor& a, const HubTensor& b) { return std::tie(a.name, a.slot) < std::tie(b.name, b.slot); });
  std::vector<std::string> order;
  for (const std::string& name : hub->order) {
    if (std::optional<std::string> own = alone(name)) order.push_back(*std::move(own));
  }
  hub->order = std::move(order);
  std::erase_if(hub->copies, [](const HubCopy& copy) { return copy.entry < 0; });
  hub->left_out.push_back(std::move(left));
  LeaveProcessorFiles(&hub->side_files, &hub->left_out);
  hub->notices.push_back(fmt::format("of the {} model only the language model is taken (--family {})", whole.name, text.name));
  hub->family = &text;
  hub->config = std::move(config);
  hub->model = std::move(model);
  return OkStatus();
}

}  // namespace crossdock::dialects::hf
