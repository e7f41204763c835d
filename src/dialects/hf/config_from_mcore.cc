// SPDX-License-Identifier: Apache-2.0
/// config.json from Megatron's arguments alone. Names of arguments: Megatron-LM 0.20 arguments.py; fields: transformers 4.57
/// and 5.24 (LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Qwen2MoeConfig, Qwen3MoeConfig, MixtralConfig, DeepseekV2Config,
/// DeepseekV3Config), which both read the result.
#include <fmt/format.h>

#include <algorithm>

#include "dialects/hf/config.h"
#include "dialects/hf/config_kinds.h"
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
  if (family.window != family::Window::kAlways && family.window != family::Window::kByFlag && !by_layer) {
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

/// Multi-latent attention has a rotary embedding of its own, whose default is yarn (megatron-core 0.19.2, MLATransformerConfig). What
/// the arguments leave to defaults there is not known here, so that yarn is taken only where they say all of it.
Result<Rope> LatentRope(const Value& args) {
  Rope rope;
  rope.theta = args.GetFloat("rotary_base");
  if (args.GetString("rope_type") == "rope") return rope;
  rope.type = "yarn";
  for (const auto& [field, name] : kLatentYarn) {
    const Value* value = args.Find(name);
    if (value == nullptr || value->is_null()) {
      return Unsupported("rope_type", args.Find("rope_type"), fmt::format("rope, or yarn beside {}, which says its {}", name, field))
          .WithHint("give the original's directory with --hf-template DIR: its config.json says the rotary embedding");
    }
    rope.factors.Set(field, *value);
  }
  return rope;
}

Result<Rope> RopeOf(const family::FamilyFile& family, const Value& args) {
  if (family.States("multi_latent_attention")) return LatentRope(args);
  Rope rope;
  rope.theta = args.GetFloat("rotary_base");
  if (const auto kind = args.GetString("position_embedding_type"); kind && *kind != "rope" && !family.States("position_embedding_type", *kind)) {
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
bool SaysBias(const family::FamilyFile& family, const family::Model& model) {
  for (const auto& [word, rules] : family.conditions) {
    const auto rule = rules.find("hf");
    if (rule != rules.end() && rule->second == "attention_bias") return model.Holds(word);
  }
  return family.States("add_bias_linear");
}

void Copy(const Value& args, std::string_view from, std::string_view to, Value* config) {
  if (const Value* value = args.Find(from); value != nullptr && !value->is_null()) config->Set(to, *value);
}

/// Fields of the letters that the arguments say; the others only where their default would give another value.
Status WriteLetters(const family::FamilyFile& family, const family::Letters& letters, const Value& args, Value* config) {
  for (const auto& [letter, value] : letters) {
    const auto& paths = family.letters.at(letter).paths;
    const auto places = paths.find("mcore");
    const std::string path = PathOfLetter(family, letter, *config);
    if (path.empty()) continue;
    const bool said = places != paths.end() && std::any_of(places->second.begin(), places->second.end(), [&](const std::string& place) {
      const Value* found = args.FindPath(place.substr(0, place.find(' ')));
      return found != nullptr && !found->is_null();
    });
    const bool always = family.letters.at(letter).fallback.empty() || family.letters.at(letter).fallback == "0" || letter == "k" || letter == "d";
    if (said || always) {
      SetPath(config, path, Value(value));
    } else if (places != paths.end()) {
      SetPath(config, path, Value());   // as the arguments, which could say it: the modeling code's default is another model's
    }
  }
  return PatchLetters(family, letters, config);
}

/// Words whose field is that of a letter with a default (`n_shared_experts`): the letter is said where the word would else be wrong.
Status WriteConditions(const family::FamilyFile& family, const family::Letters& letters, const std::vector<std::string>& wanted, Value* config) {
  const auto holding = [&](const Value& values) {
    const auto words = family::EvaluateConditions(family, {"hf", values});
    return words ? *words : std::vector<std::string>();
  };
  for (const auto& [letter, value] : letters) {
    const std::string path = PathOfLetter(family, letter, *config);
    if (path.empty() || config->FindPath(path) != nullptr || holding(*config) == wanted) continue;
    const auto before = holding(*config);
    Value more = *config;
    SetPath(&more, path, Value(value));
    const auto after = holding(more);
    const bool nearer = std::count_if(wanted.begin(), wanted.end(), [&](const auto& word) { return std::find(after.begin(), after.end(), word) != after.end(); }) >
                        std::count_if(wanted.begin(), wanted.end(), [&](const auto& word) { return std::find(before.begin(), before.end(), word) != before.end(); });
    if (nearer) *config = std::move(more);
  }
  if (holding(*config) == wanted) return OkStatus();
  return MakeError(ErrorCode::kUnsupported, fmt::format("no field of the family {}'s config.json says what Megatron's arguments say of its conditions", family.name))
      .WithExpected(fmt::format("{} conditions that hold", wanted.size()))
      .WithFound(fmt::format("{}", holding(*config).size()))
      .WithHint("give the original's directory with --hf-template DIR");
}

/// What [arguments] of the family file names, in config.json's words.
void WriteArguments(const family::FamilyFile& family, const Value& args, Value* config) {
  for (const auto& [name, path] : family.arguments) {
    const Value* value = args.Find(name);
    if (value == nullptr || value->is_null()) continue;
    if (name == "no_rope_freq" && value->as_sequence() != nullptr) {   // 1 for layers without a rotary embedding; transformers lists those with one
      ValueList rotated;
      for (const Value& without : *value->as_sequence()) rotated.emplace_back(without.Equals(Value(0)) ? 1 : 0);
      SetPath(config, path, Value::MakeList(std::move(rotated)));
    } else if (!path.starts_with('!')) {
      SetPath(config, path, *value);
    } else if (const bool* flag = value->as_bool()) {
      SetPath(config, path.substr(1), Value(!*flag));
    }
  }
}

/// What the routers of a family always do, as its modeling code wants it said.
void WriteRouter(const family::FamilyFile& family, Value* config) {
  if (family.States("moe_router_score_function", "sigmoid")) {
    config->Set("scoring_func", Value("sigmoid"));
    config->Set("topk_method", Value("noaux_tc"));
    config->Set("norm_topk_prob", Value(true));
  } else if (family.States("multi_latent_attention")) {
    config->Set("scoring_func", Value("softmax"));
    config->Set("topk_method", Value(config->GetInt("topk_group") ? "group_limited_greedy" : "greedy"));
  }
}

}  // namespace

Result<Value> ConfigFromMcoreArgs(const family::FamilyFile& family, const Value& args, const Value* original) {
  CROSSDOCK_RETURN_IF_ERROR(CheckArchitecture(family, args));
  const family::ModelConfig words{"mcore", args};
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Model model, family::EvaluateModel(family, words));
  const family::Letters& letters = model.letters;
  Result<Rope> said = RopeOf(family, args);
  if (!said && !(family.States("multi_latent_attention") && original != nullptr)) return std::move(said).error();
  const Rope rope = said ? *std::move(said) : ReadRope(*original);
  Value config = Value::MakeDict();
  if (!family.architectures.empty()) {
    config.Set("architectures", Value::MakeList({Value(family.architectures[0])}));
  }
  config.Set("attention_bias", Value(SaysBias(family, model)));
  Copy(args, "attention_dropout", "attention_dropout", &config);
  config.Set("hidden_act", Value("silu"));
  Copy(args, "init_method_std", "initializer_range", &config);
  Copy(args, "max_position_embeddings", "max_position_embeddings", &config);
  config.Set("model_type", Value(family.model_type));
  config.Set("tie_word_embeddings", Value(!model.Holds("untied")));
  CROSSDOCK_RETURN_IF_ERROR(WriteLetters(family, letters, args, &config));
  WriteArguments(family, args, &config);
  WriteRope(rope, &config);
  CROSSDOCK_RETURN_IF_ERROR(WriteConditions(family, letters, model.conditions, &config));
  // transformers repeats keys and values by q/k also here, where its default would be another model's number.
  if (family.States("multi_latent_attention") && letters.contains("q")) config.Set("num_key_value_heads", Value(letters.at("q")));
  WriteRouter(family, &config);
  if (Status kinds = PatchKinds(family, model, &config); !kinds && original == nullptr) return std::move(kinds).error();
  Copy(args, "layernorm_epsilon", "rms_norm_eps", &config);
  Copy(args, "norm_epsilon", "rms_norm_eps", &config);
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
  config.Set("use_cache", Value(true));
  config.Set("use_sliding_window", Value(window.has_value()));
  return config;
}

}  // namespace crossdock::dialects::hf
