// SPDX-License-Identifier: Apache-2.0
/// config.json from Megatron's arguments alone. Names of arguments: Megatron-LM 0.20 arguments.py; fields: transformers 4.57
/// and 5.24 (LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config), which both read the result.
#include <fmt/format.h>

#include <algorithm>

#include "dialects/hf/config.h"
#include "dialects/hf/config_patch.h"
#include "dialects/hf/rope.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 40U;  // no context comes near

Error Unsupported(std::string_view argument, const Value* found, std::string expected) {
  return MakeError(ErrorCode::kUnsupported, fmt::format("Megatron's argument `{}` has no counterpart in this family's config.json", argument))
      .WithExpected(std::move(expected))
      .WithFound(found == nullptr ? "absent" : Printable(ToJson(*found, 0)));
}

/// Arguments that would change what the weights mean; absent or null is fine.
Status CheckArchitecture(const family::FamilyFile& family, const Value& args) {
  const auto must_be = [&](std::string_view name, bool wanted) -> Status {
    const auto value = args.GetBool(name);
    if (!value || *value == wanted || family.mcore_flags.contains(std::string(name))) return OkStatus();
    return Unsupported(name, args.Find(name), wanted ? "true" : "false");
  };
  CROSSDOCK_RETURN_IF_ERROR(must_be("rotary_interleaved", false));
  CROSSDOCK_RETURN_IF_ERROR(must_be("apply_layernorm_1p", false));
  CROSSDOCK_RETURN_IF_ERROR(must_be("layernorm_zero_centered_gamma", false));
  CROSSDOCK_RETURN_IF_ERROR(must_be("add_bias_linear", false));
  CROSSDOCK_RETURN_IF_ERROR(must_be("swiglu", true));
  CROSSDOCK_RETURN_IF_ERROR(must_be("squared_relu", false));
  CROSSDOCK_RETURN_IF_ERROR(must_be("apply_residual_connection_post_layernorm", false));
  if (const auto text = args.GetString("normalization"); text && *text != "RMSNorm") {
    return Unsupported("normalization", args.Find("normalization"), "RMSNorm");
  }
  if (const auto percent = args.GetFloat("rotary_percent"); percent && *percent != 1.0 && !family.arguments.contains("rotary_percent")) {
    return Unsupported("rotary_percent", args.Find("rotary_percent"), "1.0");
  }
  return OkStatus();
}

/// Megatron's window_size (left, right) lets a token see `left` tokens before itself (megatron-core 0.19.2,
/// get_sliding_window_causal_mask); transformers' sliding_window counts the token itself (masking_utils.py,
/// sliding_window_overlay). Only a window on every layer has a counterpart.
Result<std::optional<std::int64_t>> WindowOf(const family::FamilyFile& family, const Value& args) {
  const Value* window = args.Find("window_size");
  if (window == nullptr || window->is_null()) return std::optional<std::int64_t>();
  const ValueList* sides = window->as_sequence();
  const bool pair = sides != nullptr && sides->size() == 2 && (*sides)[0].as_int() != nullptr && (*sides)[1].as_int() != nullptr;
  if (!pair || *(*sides)[0].as_int() < 0 || *(*sides)[0].as_int() > kMaxWindow || *(*sides)[1].as_int() != 0) {
    return Unsupported("window_size", window, "(N, 0): N tokens before the own one, none behind it");
  }
  const bool by_layer = family.arguments.contains("window_attn_skip_freq");
  if (const Value* skip = args.Find("window_attn_skip_freq"); skip != nullptr && !skip->is_null() && !by_layer) {
    return Unsupported("window_attn_skip_freq", skip, "absent: a window on all layers alike");
  }
  if (family.name != "mistral" && family.name != "phi3" && !family.name.starts_with("qwen") && !by_layer) {
    return Unsupported("window_size", window, "absent").WithHint("Mistral's tensors are those of Llama: name that family with `--family mistral`");
  }
  return std::optional<std::int64_t>(*(*sides)[0].as_int() + 1);
}

/// Which layers have the window: N means that each N-th has none, a list has 1 for those with it (megatron-core 0.19.2,
/// is_layer_window_attention).
Result<Value> LayerTypes(const Value& args, std::int64_t layers) {
  const Value* skip = args.Find("window_attn_skip_freq");
  const ValueList* list = skip != nullptr ? skip->as_sequence() : nullptr;
  const std::int64_t* every = skip != nullptr ? skip->as_int() : nullptr;
  const bool fits = list != nullptr ? static_cast<std::int64_t>(list->size()) == layers : skip == nullptr || skip->is_null() || (every != nullptr && *every > 0);
  if (!fits) return Unsupported("window_attn_skip_freq", skip, fmt::format("a number above 0, or a list of {}", layers));
  ValueList types;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    bool windowed = every == nullptr || (layer + 1) % *every != 0;
    if (list != nullptr) windowed = !(*list)[static_cast<std::size_t>(layer)].Equals(Value(0));
    types.emplace_back(windowed ? "sliding_attention" : "full_attention");
  }
  return Value::MakeList(std::move(types));
}

Result<Rope> RopeOf(const family::FamilyFile& family, const Value& args) {
  Rope rope;
  rope.theta = args.GetFloat("rotary_base");
  const auto other = family.mcore_flags.find("position_embedding_type");
  if (const auto kind = args.GetString("position_embedding_type"); kind && *kind != "rope" && (other == family.mcore_flags.end() || other->second != *kind)) {
    return Unsupported("position_embedding_type", args.Find("position_embedding_type"), "rope")
        .WithHint("this scaling of positions is unknown here");
  }
  if (args.GetString("position_embedding_type") == "yarn") {
    constexpr std::pair<const char*, const char*> kFactors[] = {{"yarn_rotary_scaling_factor", "factor"}, {"yarn_original_max_position_embeddings", "original_max_position_embeddings"},
                                                                {"yarn_beta_fast", "beta_fast"}, {"yarn_beta_slow", "beta_slow"}, {"yarn_mscale", "mscale"},
                                                                {"yarn_mscale_all_dim", "mscale_all_dim"}, {"yarn_correction_range_round_to_int", "truncate"}};
    rope.type = "yarn";
    for (const auto& [argument, field] : kFactors) {
      if (const Value* value = args.Find(argument); value != nullptr && !value->is_null()) rope.factors.Set(field, *value);
    }
  }
  if (args.GetBool("use_rope_scaling").value_or(false)) {
    // The factors besides the first are constants in Megatron-Core's RotaryEmbedding.
    rope.type = "llama3";
    rope.factors.Set("factor", Value(args.GetFloat("rope_scaling_factor").value_or(8.0)));
    rope.factors.Set("high_freq_factor", Value(4.0));
    rope.factors.Set("low_freq_factor", Value(1.0));
    rope.factors.Set("original_max_position_embeddings", Value(8192));
  }
  if (const auto factor = args.GetFloat("rotary_seq_len_interpolation_factor"); factor && *factor != 1.0) {
    if (rope.type != "default") {
      return Unsupported("rotary_seq_len_interpolation_factor", args.Find("rotary_seq_len_interpolation_factor"),
                         "absent beside use_rope_scaling");
    }
    rope.type = "linear";
    rope.factors.Set("factor", Value(*factor));
  }
  return rope;
}

/// config.json's attention_bias: where a condition of the family reads it, or all linear layers have biases. Other families with biases
/// on q, k, v have them without being told.
bool SaysBias(const family::FamilyFile& family, const std::vector<std::string>& conditions) {
  for (const auto& [word, rules] : family.conditions) {
    const auto rule = rules.find("hf");
    if (rule != rules.end() && rule->second == "attention_bias") return std::find(conditions.begin(), conditions.end(), word) != conditions.end();
  }
  const auto all = family.mcore_flags.find("add_bias_linear");
  return all != family.mcore_flags.end() && all->second == "true";
}

void Copy(const Value& args, std::string_view from, std::string_view to, Value* config) {
  if (const Value* value = args.Find(from); value != nullptr && !value->is_null()) config->Set(to, *value);
}

}  // namespace

Result<Value> ConfigFromMcoreArgs(const family::FamilyFile& family, const Value& args) {
  CROSSDOCK_RETURN_IF_ERROR(CheckArchitecture(family, args));
  const family::ModelConfig words{"mcore", args};
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Letters letters, family::EvaluateLetters(family, words));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> conditions, family::EvaluateConditions(family, words));
  CROSSDOCK_ASSIGN_OR_RETURN(const Rope rope, RopeOf(family, args));
  Value config = Value::MakeDict();
  if (!family.architectures.empty()) {
    config.Set("architectures", Value::MakeList({Value(family.architectures[0])}));
  }
  config.Set("attention_bias", Value(SaysBias(family, conditions)));
  Copy(args, "attention_dropout", "attention_dropout", &config);
  config.Set("hidden_act", Value("silu"));
  Copy(args, "init_method_std", "initializer_range", &config);
  Copy(args, "max_position_embeddings", "max_position_embeddings", &config);
  config.Set("model_type", Value(family.model_type));
  for (const auto& [letter, value] : letters) {
    const std::string path = PathOfLetter(family, letter, config);
    if (!path.empty()) SetPath(&config, path, Value(value));
  }
  Copy(args, "layernorm_epsilon", "rms_norm_eps", &config);
  Copy(args, "norm_epsilon", "rms_norm_eps", &config);
  WriteRope(rope, &config);
  if (args.GetFloat("rotary_percent").value_or(1.0) != 1.0) {
    SetPath(&config, "rope_parameters.partial_rotary_factor", *args.Find("rotary_percent"));
    config.Set("partial_rotary_factor", *args.Find("rotary_percent"));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::int64_t> window, WindowOf(family, args));
  if (window && family.arguments.contains("window_attn_skip_freq")) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value types, LayerTypes(args, letters.at("layers")));
    config.Set("layer_types", std::move(types));
  }
  if (window) config.Set("max_window_layers", Value(0));  // Qwen's first layers would else see everything
  config.Set("sliding_window", window ? Value(*window) : Value());  // MistralConfig's default is 4096, not none
  const bool untied = std::find(conditions.begin(), conditions.end(), "untied") != conditions.end();
  config.Set("tie_word_embeddings", Value(!untied));
  config.Set("use_cache", Value(true));
  config.Set("use_sliding_window", Value(window.has_value()));
  return config;
}

}  // namespace crossdock::dialects::hf
