// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "dialects/hf/config_kinds.h"
#include "dialects/hf/config_patch.h"
#include "dialects/hf/rope.h"
#include "family/model.h"
#include "family/row_syntax.h"

namespace crossdock::dialects::hf {
namespace {

/// Fields beside sizes and rope in which a checkpoint overrules the template, by consequence for the output.
constexpr std::array kOverruling = {"tie_word_embeddings", "rms_norm_eps",   "max_position_embeddings",
                                    "hidden_act",          "attention_bias", "mlp_bias"};

std::string_view TorchName(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kF32: return "float32";
    case DType::kF64: return "float64";
    default: return "";
  }
}

std::string Text(const Value* value) { return value == nullptr ? "absent" : ToJson(*value, 0); }

/// Numbers that mean the same are the same: 10000 and 10000.0.
bool Same(const Value* a, const Value& b) {
  if (a == nullptr) return false;
  const auto number = [](const Value& v) -> std::optional<double> {
    if (const auto* i = v.as_int()) return static_cast<double>(*i);
    if (const auto* f = v.as_float()) return *f;
    return std::nullopt;
  };
  const auto x = number(*a);
  const auto y = number(b);
  return x && y ? *x == *y : a->Equals(b);
}

/// A list with one item a layer (`layer_types`, `no_rope_layers`) must follow the number of layers: transformers checks.
void ResizeLayerLists(std::int64_t before, std::int64_t after, Value* config) {
  if (before == after || before <= 0 || after <= 0) return;
  for (auto& [key, value] : config->as_dict()->items) {
    ValueList* list = value.mutable_sequence();
    if (list == nullptr || static_cast<std::int64_t>(list->size()) != before) continue;
    const std::string* name = key.as_string();
    if (name == nullptr || (*name != "layer_types" && *name != "no_rope_layers" && *name != "mlp_layer_types")) continue;
    list->resize(static_cast<std::size_t>(after), list->back());
  }
}

/// A key put right behind another one, or at the end.
void InsertAfter(std::string_view before, std::string_view key, Value value, Value* config) {
  if (config->Find(key) != nullptr) return config->Set(key, std::move(value));
  ValueDict& items = config->as_dict()->items;
  const auto at = std::find_if(items.begin(), items.end(), [&](const auto& item) {
    return item.first.as_string() != nullptr && *item.first.as_string() == before;
  });
  items.insert(at == items.end() ? at : at + 1, {Value(key), std::move(value)});
}

class Patcher {
 public:
  Patcher(const HubState& hub, Value own, Value base) : hub_(hub), own_(std::move(own)) { result_.config = std::move(base); }

  Result<ConfigResult> Run(DType param_dtype) {
    const Value before = result_.config;
    DropQuantization(before);
    CROSSDOCK_RETURN_IF_ERROR(PatchLetters(*hub_.family, hub_.model.letters, &result_.config));
    CROSSDOCK_RETURN_IF_ERROR(PatchKinds(*hub_.family, hub_.model, &result_.config));
    PatchArguments();
    CROSSDOCK_RETURN_IF_ERROR(PatchRope());
    for (const char* key : kOverruling) {
      const Value* mine = own_.Find(key);
      if (mine != nullptr && !Same(result_.config.Find(key), *mine) && !IsImplied(key, *mine)) result_.config.Set(key, *mine);
    }
    PatchWindow();
    ListChanges(before);
    SetDType(before, param_dtype);
    return std::move(result_);
  }

 private:
  /// What is written is never quantized, whatever the source or the template was.
  void DropQuantization(const Value& before) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      const Value* there = before.Find(key);
      if (there == nullptr) continue;
      result_.config.Erase(key);
      const std::string method = there->GetString("quant_method").value_or("");
      result_.changes.push_back({key, method.empty() ? Text(there) : "of method " + ToJson(Value(method), 0), "absent"});
    }
  }

  /// What [arguments] of the family file names, where the checkpoint says it.
  void PatchArguments() {
    for (const auto& [name, place] : hub_.family->arguments) {
      const std::string path = place.starts_with('!') ? place.substr(1) : place;
      const Value* mine = own_.FindPath(path);
      if (mine == nullptr || mine->is_null() || Same(result_.config.FindPath(path), *mine)) continue;
      if (!IsImplied(path, *mine)) SetPath(&result_.config, path, *mine);
    }
  }

  /// A window that Megatron's arguments name holds for all layers, whatever the template says.
  void PatchWindow() {
    if (hub_.config.words != "mcore" || !own_.GetInt("sliding_window")) return;
    const bool by_flag = hub_.family->window == family::Window::kByFlag;
    for (const char* key : {"sliding_window", "use_sliding_window", "max_window_layers"}) {
      const bool needed = by_flag || std::string_view(key) == "sliding_window";
      if (needed && !Same(result_.config.Find(key), *own_.Find(key))) result_.config.Set(key, *own_.Find(key));
    }
    const Value* types = result_.config.Find("layer_types");
    if (types == nullptr || types->as_sequence() == nullptr) return;
    if (const Value* own = own_.Find("layer_types")) return result_.config.Set("layer_types", *own);
    result_.config.Set("layer_types", Value::MakeList(ValueList(types->as_sequence()->size(), Value("sliding_attention"))));
  }

  /// False and null are what absence means for these; adding them would be a change without a consequence.
  bool IsImplied(std::string_view key, const Value& mine) const {
    if (result_.config.Find(key) != nullptr) return false;
    const bool* flag = mine.as_bool();
    return mine.is_null() || (flag != nullptr && !*flag && key != "tie_word_embeddings");
  }

  Status PatchRope() {
    const Rope mine = ReadRope(own_);
    Rope base = ReadRope(result_.config);
    const bool same_theta = !mine.theta || (base.theta && *base.theta == *mine.theta);
    if (same_theta && mine.SameScaling(base)) return OkStatus();
    if (!IsKnownRopeType(mine.type) || !IsKnownRopeType(base.type)) {
      return MakeError(ErrorCode::kUnsupported, "the rope scaling of checkpoint and template differ, and one is unknown here")
          .WithExpected(base.type)
          .WithFound(Printable(mine.type))
          .WithHint("leave --hf-template out, or give the template that the model was trained from");
    }
    if (mine.theta) base.theta = mine.theta;
    base.type = mine.type;
    base.factors = mine.factors;
    WriteRope(base, &result_.config);
    return OkStatus();
  }

  void ListChanges(const Value& before) {
    std::vector<std::string> order;
    for (const auto& [letter, rule] : hub_.family->letters) {
      const std::string path = PathOfLetter(*hub_.family, letter, result_.config);
      if (!path.empty()) order.push_back(path.substr(0, path.find('.')));
    }
    for (const char* key : {"layer_types", "rope_theta", "rope_scaling", "rope_parameters"}) order.emplace_back(key);
    for (const char* key : kOverruling) order.emplace_back(key);
    for (const auto& [key, value] : result_.config.as_dict()->items) {
      if (const std::string* name = key.as_string()) order.push_back(*name);
    }
    std::vector<std::string> told;
    for (const std::string& key : order) {
      if (std::find(told.begin(), told.end(), key) != told.end()) continue;
      told.push_back(key);
      const Value* old = before.Find(key);
      const Value* now = result_.config.Find(key);
      if (now == nullptr || (old != nullptr && old->Equals(*now))) continue;
      result_.changes.push_back({key, Text(old), Text(now)});
    }
  }

  /// Both spellings: transformers 5 reads `dtype`, 4.x and older serving stacks `torch_dtype`.
  void SetDType(const Value& before, DType param_dtype) {
    const Value name(TorchName(param_dtype));
    if (name.as_string()->empty()) return;
    const char* first = before.Find("dtype") != nullptr ? "dtype" : before.Find("torch_dtype") != nullptr ? "torch_dtype" : nullptr;
    const Value* declared = first != nullptr ? before.Find(first) : nullptr;
    if (declared != nullptr && !declared->Equals(name)) {
      result_.changes.push_back({first, Text(declared), ToJson(name, 0)});
    }
    if (first == nullptr) first = "dtype";
    result_.config.Set(first, name);
    InsertAfter(first, std::string_view(first) == "dtype" ? "torch_dtype" : "dtype", name, &result_.config);
  }

  const HubState& hub_;
  Value own_;
  ConfigResult result_;
};

}  // namespace

void SetPath(Value* config, std::string_view dotted, Value value) {
  const std::size_t dot = dotted.find('.');
  if (dot == std::string_view::npos) return config->Set(dotted, std::move(value));
  const std::string_view head = dotted.substr(0, dot);
  const Value* below = config->Find(head);
  Value dict = below != nullptr && below->as_dict() != nullptr ? *below : Value::MakeDict();
  SetPath(&dict, dotted.substr(dot + 1), std::move(value));
  config->Set(head, std::move(dict));
}

std::string PathOfLetter(const family::FamilyFile& family, const std::string& letter, const Value& config) {
  const auto rule = family.letters.find(letter);
  if (rule == family.letters.end()) return {};
  const auto paths = rule->second.paths.find("hf");
  if (paths == rule->second.paths.end() || paths->second.empty()) return {};
  const auto plain = [](const std::string& path) { return family::Trim(std::string_view(path).substr(0, path.find('?'))); };
  for (const std::string& path : paths->second) {
    const Value* value = config.FindPath(plain(path));
    if (value != nullptr && !value->is_null()) return plain(path);
  }
  return plain(paths->second[0]);
}

Status PatchLetters(const family::FamilyFile& family, const family::Letters& letters, Value* config) {
  const std::int64_t layers_before = config->GetInt(PathOfLetter(family, "layers", *config)).value_or(0);
  for (const auto& [letter, value] : letters) {
    const std::string path = PathOfLetter(family, letter, *config);
    if (path.empty()) continue;
    const Value* there = config->FindPath(path);
    if (there == nullptr || there->is_null() || config->GetInt(path) == value) continue;
    SetPath(config, path, Value(value));
  }
  ResizeLayerLists(layers_before, config->GetInt(PathOfLetter(family, "layers", *config)).value_or(0), config);
  // What is absent follows from its fallback; where that gives another value it must be said.
  for (const auto& [letter, value] : letters) {
    const std::string path = PathOfLetter(family, letter, *config);
    if (path.empty() || config->GetInt(path)) continue;
    const auto now = family::EvaluateLetters(family, {"hf", *config});
    if (now && now->contains(letter) && now->at(letter) == value) continue;
    SetPath(config, path, Value(value));
  }
  return OkStatus();
}

namespace {

/// The configuration of a model of several parts: the template's or the source's own as it stands, with the dtype that is written.
Result<ConfigResult> WholeConfig(const HubState& hub, const std::optional<family::ModelConfig>& template_config, DType param_dtype) {
  if (hub.config.words != "hf" && !template_config) {
    return MakeError(ErrorCode::kIncomplete, fmt::format("config.json of the family {} cannot be made from Megatron's arguments: they say too little of its parts", hub.family->name))
        .WithHint("give the original's with --hf-template DIR");
  }
  ConfigResult result{template_config ? template_config->values : hub.config.values, {}};
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Model model, family::EvaluateModel(*hub.family, {"hf", result.config}));
  for (const auto& [letter, value] : hub.model.letters) {
    if (model.letters.at(letter) == value) continue;
    return MakeError(ErrorCode::kUsage, "the template's config.json is that of another model")
        .WithExpected(fmt::format("{} = {}", PathOfLetter(*hub.family, letter, result.config), value))
        .WithFound(fmt::format("{}", model.letters.at(letter)));
  }
  if (model.conditions != hub.model.conditions) {
    return MakeError(ErrorCode::kUsage, "the template's config.json is that of another model").WithFound("another tie_word_embeddings");
  }
  const Value name(TorchName(param_dtype));
  if (name.as_string()->empty()) return result;
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (const Value* there = result.config.Find(key)) {
      result.changes.push_back({key, Text(there), "absent"});
      result.config.Erase(key);
    }
  }
  const char* key = result.config.Find("dtype") == nullptr && result.config.Find("torch_dtype") != nullptr ? "torch_dtype" : "dtype";
  const Value* declared = result.config.Find(key);
  if (declared != nullptr && !declared->Equals(name)) result.changes.push_back({key, Text(declared), ToJson(name, 0)});
  result.config.Set(key, name);
  InsertAfter(key, std::string_view(key) == "dtype" ? "torch_dtype" : "dtype", name, &result.config);
  for (const char* part : {"text_config", "vision_config"}) {
    for (const char* spelling : {"dtype", "torch_dtype"}) {
      const std::string path = fmt::format("{}.{}", part, spelling);
      if (const Value* there = result.config.FindPath(path); there != nullptr && !there->is_null()) SetPath(&result.config, path, name);
    }
  }
  return result;
}

}  // namespace

Result<ConfigResult> MakeConfig(const HubState& hub, const std::optional<family::ModelConfig>& template_config,
                                DType param_dtype) {
  if (!hub.family->text_config.empty()) return WholeConfig(hub, template_config, param_dtype);
  Value own = hub.config.values;
  if (hub.config.words == "mcore") {
    CROSSDOCK_ASSIGN_OR_RETURN(own, ConfigFromMcoreArgs(*hub.family, hub.config.values, template_config ? &template_config->values : nullptr));
  }
  Value base = template_config ? template_config->values : own;
  if (base.as_dict() == nullptr) base = Value::MakeDict();
  return Patcher(hub, std::move(own), std::move(base)).Run(param_dtype);
}

}  // namespace crossdock::dialects::hf
