// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/args.h"

#include <array>
#include <charconv>
#include <cmath>

#include "dialects/hf/config_check.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// Names of Megatron-Bridge's model section that differ from those of `args`.
void TranslateBridge(const Value& model, Value* args) {
  for (const auto& [key, value] : model.as_dict()->items) {
    if (const std::string* name = key.as_string(); name != nullptr && !name->starts_with('_')) args->Set(*name, value);
  }
  if (const std::optional<bool> shared = model.GetBool("share_embeddings_and_output_weights")) {
    args->Set("untie_embeddings_and_output_weights", Value(!*shared));
  }
  if (const std::optional<std::int64_t> groups = model.GetInt("num_query_groups")) {
    args->Set("group_query_attention", Value(groups != model.GetInt("num_attention_heads")));
  }
  if (const std::optional<bool> gated = model.GetBool("gated_linear_unit")) args->Set("swiglu", Value(*gated));
  if (const std::optional<bool> scaled = model.GetBool("rope_scaling")) args->Set("use_rope_scaling", Value(*scaled));
  if (args->GetInt("seq_length") && !args->GetInt("max_position_embeddings")) args->Set("max_position_embeddings", *args->Find("seq_length"));  // as Bridge's GPTModelProvider builds it
  if (const std::optional<std::int64_t> experts = model.GetInt("num_moe_experts")) args->Set("num_experts", Value(*experts));
}

/// A setting that decides values and that the rules do not know how to undo.
struct Obstacle {
  std::string_view setting;
  std::string_view meaning;
};
constexpr std::array kFlagObstacles = {
    Obstacle{"apply_layernorm_1p", "norm weights stored minus one"},
    Obstacle{"layernorm_zero_centered_gamma", "norm weights stored minus one"},
    Obstacle{"squared_relu", "another activation"},
    Obstacle{"openai_gelu", "another activation"},
    Obstacle{"quick_geglu", "another activation"},
    Obstacle{"add_bias_linear", "biases on all linear layers"},
    Obstacle{"multi_latent_attention", "multi-latent attention"},
    Obstacle{"attention_output_gate", "gated attention"},
};

Error Inexpressible(const family::FamilyFile& family, const std::string& origin, std::string_view setting, const std::string& value,
                    std::string_view meaning) {
  return MakeError(ErrorCode::kUnsupported, fmt::format("the checkpoint was trained with {} = {}: {}", setting, value, meaning))
      .WithPath(origin)
      .WithExpected(fmt::format("a setting that the family {} has rules for", family.name));
}

std::string Shown(const Value& value) { return Printable(ToJson(value, 0), 60); }

/// Numbers that are passed on into other words: one that cannot be meant would be taken for absent there.
constexpr std::array kNumbers = {
    hf::FieldRule{"rotary_base", hf::FieldKind::kPositive},
    hf::FieldRule{"rotary_percent", hf::FieldKind::kFraction},
    hf::FieldRule{"rope_scaling_factor", hf::FieldKind::kPositive},
    hf::FieldRule{"rotary_seq_len_interpolation_factor", hf::FieldKind::kPositive},
    hf::FieldRule{"layernorm_epsilon", hf::FieldKind::kNotNegative},
    hf::FieldRule{"norm_epsilon", hf::FieldKind::kNotNegative},
    hf::FieldRule{"max_position_embeddings", hf::FieldKind::kCount},
};

}  // namespace

const Value* CommonState(const Catalog& catalog) {
  const auto found = catalog.objects.find("common");
  if (found == catalog.objects.end()) return nullptr;
  const ValueList* shards = found->second.as_sequence();  // an item inside .distcp files is a list of one
  const Value* common = shards != nullptr && shards->size() == 1 ? &shards->front() : &found->second;
  return common->as_dict() != nullptr ? common : nullptr;
}

std::optional<StoredArgs> ReadStoredArgs(const Catalog& catalog) {
  if (const Value* common = CommonState(catalog)) {
    const Value* args = common->Find("args");
    const Opaque* space = args != nullptr ? args->as_opaque() : nullptr;
    const Value* values = space != nullptr ? space->state.get() : args;
    if (values != nullptr && values->as_dict() != nullptr) return StoredArgs{*values, "common.pt"};
  }
  return ReadRunConfig(catalog);
}

std::optional<StoredArgs> ReadRunConfig(const Catalog& catalog) {
  const auto config = catalog.objects.find(kRunConfig);
  if (config == catalog.objects.end()) return std::nullopt;
  const Value* model = config->second.Find("model");
  if (model == nullptr || model->as_dict() == nullptr) return std::nullopt;
  StoredArgs stored;
  stored.origin = kRunConfig;
  TranslateBridge(*model, &stored.args);
  return stored;
}

Status CheckExpressible(const Value& args, const family::FamilyFile& family, const std::string& origin) {
  CROSSDOCK_RETURN_IF_ERROR(hf::CheckFields(args, kNumbers, origin));
  for (const Obstacle& obstacle : kFlagObstacles) {
    if (family.States(std::string(obstacle.setting))) continue;
    if (args.GetBool(obstacle.setting).value_or(false)) return Inexpressible(family, origin, obstacle.setting, "True", obstacle.meaning);
  }
  const auto other_text = [&](std::string_view setting, std::string_view wanted) {
    const std::optional<std::string> value = args.GetString(setting);
    return value && *value != wanted ? value : std::nullopt;
  };
  if (const auto norm = other_text("normalization", "RMSNorm")) return Inexpressible(family, origin, "normalization", Printable(*norm), "another norm than RMSNorm");
  if (const auto position = other_text("position_embedding_type", "rope"); position && !family.States("position_embedding_type", *position)) {
    return Inexpressible(family, origin, "position_embedding_type", Printable(*position), "another position embedding than rotary");
  }
  const bool latent = family.States("multi_latent_attention");  // which knows yarn
  if (const auto rope = other_text("rope_type", "rope"); rope && !(latent && *rope == "yarn")) return Inexpressible(family, origin, "rope_type", Printable(*rope), "a rotary scaling without a rule");
  if (args.GetBool("swiglu") == false && !family.States("swiglu", "false")) return Inexpressible(family, origin, "swiglu", "False", "an MLP without a gate");
  if (family.States("rotary_interleaved") && args.GetBool("rotary_interleaved") == false) {
    return Inexpressible(family, origin, "rotary_interleaved", "False", "pairs of q and k apart, where the hub has them side by side");
  }
  for (std::string_view setting : {"num_experts", "mtp_num_layers"}) {
    const Value* value = args.Find(setting);
    if (setting == "num_experts" && family.letters.contains("experts")) continue;
    if (setting == "mtp_num_layers" && family.letters.contains("mtp")) continue;
    if (value != nullptr && args.GetInt(setting).value_or(0) != 0) return Inexpressible(family, origin, setting, Shown(*value), "layers that a dense family lacks");
  }
  return OkStatus();
}

Value ParseArgument(std::string_view text) {
  if (text == "True" || text == "true") return Value(true);
  if (text == "False" || text == "false") return Value(false);
  if (text == "None" || text == "null") return {};
  const char* end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, whole); error == std::errc{} && at == end) return Value(whole);
  double real = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, real); error == std::errc{} && at == end && std::isfinite(real)) return Value(real);
  return Value(text);
}

bool TiesEmbeddings(const Value& args) { return !args.GetBool("untie_embeddings_and_output_weights").value_or(false); }

bool HasGatedMlp(const Value& args) {
  return args.GetBool("swiglu").value_or(true) || args.GetBool("quick_geglu").value_or(false) || args.GetBool("gated_linear_unit").value_or(false);
}

}  // namespace crossdock::dialects::mcore
