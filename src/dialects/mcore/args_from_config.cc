// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "dialects/hf/rope.h"
#include "dialects/mcore/args.h"
#include "family/text_config.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// What describes an architecture in Megatron's arguments; passed on between Megatron checkpoints.
constexpr std::array kArchitecture = {
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "group_query_attention", "num_query_groups", "kv_channels",
    "max_position_embeddings", "seq_length", "position_embedding_type", "rotary_base", "rotary_percent", "rotary_interleaved",
    "rotary_seq_len_interpolation_factor", "use_rope_scaling", "rope_scaling_factor", "normalization", "layernorm_epsilon", "norm_epsilon",
    "swiglu", "squared_relu", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "untie_embeddings_and_output_weights", "window_size",
    "attention_dropout", "hidden_dropout", "apply_query_key_layer_scaling", "softmax_scale", "tokenizer_type", "tokenizer_model",
    "linear_attention_freq", "rope_type", "rotary_scaling_factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
    "moe_layer_freq", "window_attn_skip_freq", "yarn_rotary_scaling_factor", "yarn_original_max_position_embeddings", "yarn_beta_fast",
    "yarn_beta_slow", "yarn_mscale", "yarn_mscale_all_dim", "yarn_correction_range_round_to_int"};

/// Llama 3's rotary scaling as Megatron has it: these are constants there, only the factor is an argument.
struct Llama3Constant {
  const char* key;
  double value;
};
constexpr std::array kLlama3 = {Llama3Constant{"low_freq_factor", 1}, Llama3Constant{"high_freq_factor", 4},
                                Llama3Constant{"original_max_position_embeddings", 8192}};

Error NoArgument(std::string what, std::string found) {
  return MakeError(ErrorCode::kUnsupported, std::move(what)).WithPath("config.json").WithFound(std::move(found));
}

std::string Quoted(const Value& value) { return Printable(ToJson(value, 0), 120); }

Value WholeIfPossible(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return Value(static_cast<std::int64_t>(value));
  return Value(value);
}

/// Multi-latent attention has a rotary embedding of its own, which knows yarn (megatron-core 0.19.2, MLATransformerConfig).
bool SetLatentRope(const hf::Rope& rope, Value* args) {
  if (rope.type != "default" && rope.type != "yarn") return false;
  args->Set("rope_type", Value(rope.type == "yarn" ? "yarn" : "rope"));
  if (rope.type == "default") return true;
  for (const auto& [field, name] : hf::kLatentYarn) {
    if (const Value* value = rope.factors.Find(field); value != nullptr && !value->is_null()) args->Set(name, *value);
  }
  return true;
}

/// Yarn outside latent attention (megatron-core 0.19.2, GPTModel with position_embedding_type yarn).
void SetYarn(const hf::Rope& rope, Value* args) {
  args->Set("position_embedding_type", Value("yarn"));
  args->Set("yarn_rotary_scaling_factor", Value(rope.factors.GetFloat("factor").value_or(1.0)));
  args->Set("yarn_original_max_position_embeddings", Value(rope.factors.GetInt("original_max_position_embeddings").value_or(4096)));
  args->Set("yarn_beta_fast", Value(rope.factors.GetFloat("beta_fast").value_or(32.0)));
  args->Set("yarn_beta_slow", Value(rope.factors.GetFloat("beta_slow").value_or(1.0)));
  for (const auto& [field, name] : {std::pair{"mscale", "yarn_mscale"}, std::pair{"mscale_all_dim", "yarn_mscale_all_dim"}}) {
    const Value* value = rope.factors.Find(field);
    args->Set(name, value != nullptr ? *value : Value());
  }
  args->Set("yarn_correction_range_round_to_int", Value(rope.factors.GetBool("truncate").value_or(true)));
}

/// The part of a head that is rotated: both places of transformers, or MiniMax's number of dimensions.
double RotatedPart(const hf::Rope& rope, const family::Letters& letters, const Value& config) {
  if (const auto part = rope.factors.GetFloat("partial_rotary_factor")) return *part;
  if (const auto part = config.GetFloat("partial_rotary_factor")) return *part;
  const std::optional<std::int64_t> rotated = config.GetInt("rotary_dim");
  const auto size = letters.find("d");
  if (rotated && *rotated > 0 && size != letters.end()) return static_cast<double>(*rotated) / static_cast<double>(size->second);
  return 1.0;
}

Status SetRope(const family::FamilyFile& family, const family::Letters& letters, const Value& config, Value* args) {
  const hf::Rope rope = hf::ReadRope(config);
  args->Set("position_embedding_type", Value("rope"));
  args->Set("add_position_embedding", Value(true));
  args->Set("use_rotary_position_embeddings", Value(true));
  args->Set("rotary_base", WholeIfPossible(rope.theta.value_or(10000.0)));
  args->Set("rotary_percent", Value(RotatedPart(rope, letters, config)));
  args->Set("rotary_interleaved", Value(false));
  args->Set("use_rope_scaling", Value(false));
  args->Set("rope_scaling_factor", Value(8.0));  // Megatron's default
  args->Set("rotary_seq_len_interpolation_factor", Value());
  if (family.States("multi_latent_attention") && SetLatentRope(rope, args)) return OkStatus();
  // "dynamic" stretches the frequencies only beyond max_position_embeddings, which a run of Megatron does not exceed; WriteHub says so.
  if (rope.type == "default" || rope.type == "dynamic") return OkStatus();
  if (rope.type == "yarn" && family.States("position_embedding_type", "yarn")) {
    SetYarn(rope, args);
    return OkStatus();
  }
  const std::optional<double> factor = rope.factors.GetFloat("factor");
  if (rope.type == "linear" && factor) {
    if (*factor != std::floor(*factor)) return NoArgument("Megatron takes only whole factors of a linear rotary scaling", Quoted(rope.factors));
    args->Set("rotary_seq_len_interpolation_factor", WholeIfPossible(*factor));
    return OkStatus();
  }
  if (rope.type != "llama3" || !factor) {
    return NoArgument(fmt::format("Megatron has no argument for the rotary scaling \"{}\" of this model", Printable(rope.type)), Quoted(rope.factors));
  }
  for (const Llama3Constant& constant : kLlama3) {
    const std::optional<double> value = rope.factors.GetFloat(constant.key);
    if (value && *value != constant.value) {
      return NoArgument(fmt::format("Megatron computes Llama 3's rotary scaling with {} = {} only", constant.key, constant.value), Quoted(rope.factors));
    }
  }
  args->Set("use_rope_scaling", Value(true));
  args->Set("rope_scaling_factor", Value(*factor));
  return OkStatus();
}

/// A sliding window of N tokens, the own one included, is N - 1 to the left in Megatron; window_attn_skip_freq lists the layers
/// that have it (1) where not all do.
Status SetWindow(const family::FamilyFile& family, const Value& config, Value* args) {
  args->Set("window_size", Value());
  const bool by_layer = family.arguments.contains("window_attn_skip_freq");
  if (by_layer) args->Set("window_attn_skip_freq", Value());
  const std::optional<std::int64_t> window = config.GetInt("sliding_window");
  const bool by_flag = family.window == family::Window::kByFlag;
  const bool used = by_flag ? config.GetBool("use_sliding_window").value_or(false) : family.window != family::Window::kNone;
  if (!window || *window == 0 || !used) return OkStatus();
  const Value* types = config.Find("layer_types");
  const ValueList* list = types != nullptr ? types->as_sequence() : nullptr;
  const bool mixed = list != nullptr && !list->empty() && std::any_of(list->begin(), list->end(), [&](const Value& v) { return !v.Equals(list->front()); });
  if (mixed && by_layer) {
    ValueList windowed;
    for (const Value& type : *list) windowed.emplace_back(type.Equals(Value("sliding_attention")) ? 1 : 0);
    args->Set("window_size", Value::MakeTuple({Value(*window - 1), Value(0)}));
    args->Set("window_attn_skip_freq", Value::MakeList(std::move(windowed)));
    return OkStatus();
  }
  const bool partial = config.GetInt("max_window_layers").value_or(0) > 0;
  if (mixed || (by_flag && partial)) return NoArgument("Megatron's window_size holds for all layers alike", "a sliding window on some layers (use_sliding_window, max_window_layers)");
  if (list != nullptr && !list->empty() && list->front().Equals(Value("full_attention"))) return OkStatus();
  args->Set("window_size", Value::MakeTuple({Value(*window - 1), Value(0)}));
  return OkStatus();
}

/// Whether the family has rules for what a flag of config.json adds: a condition or an argument reads it, or all its linear
/// layers have biases.
bool ReadsFlag(const family::FamilyFile& family, const std::string& flag) {
  const auto reads = [&](const auto& condition) {
    const auto rule = condition.second.find("hf");
    return rule != condition.second.end() && rule->second == flag;
  };
  const auto is_argument = [&](const auto& argument) { return argument.second == flag; };
  return family.States("add_bias_linear") || std::any_of(family.conditions.begin(), family.conditions.end(), reads) ||
         std::any_of(family.arguments.begin(), family.arguments.end(), is_argument);
}

Status CheckConfig(const family::FamilyFile& family, const Value& config) {
  const std::string activation = config.GetString("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish") return NoArgument("the rules know gated MLPs with silu only (hidden_act)", Printable(activation));
  for (const char* flag : {"attention_bias", "mlp_bias"}) {
    if (config.GetBool(flag).value_or(false) && !ReadsFlag(family, flag)) return NoArgument(fmt::format("the rules know no biases by {}", flag), fmt::format("{} = true", flag));
  }
  return OkStatus();
}

/// A letter that stands for what this model does not have (a rank of 1 where there is no low-rank projection) is not stored.
bool Counts(const family::FamilyFile& family, const family::Model& model, const std::string& letter) {
  if (letter == "ql") return model.Holds("qlora");
  if (letter == "s" && family.conditions.contains("shared")) return model.Holds("shared");
  return true;
}

/// no_rope_freq lists with 1 the layers without a rotary embedding, transformers' no_rope_layers with 0.
void SetUnrotatedLayers(const family::FamilyFile& family, const Value& config, Value* args) {
  const Value* layers = config.Find("no_rope_layers");
  if (!family.arguments.contains("no_rope_freq") || layers == nullptr || layers->as_sequence() == nullptr) return;
  ValueList unrotated;
  for (const Value& rotated : *layers->as_sequence()) unrotated.emplace_back(rotated.Equals(Value(0)) ? 1 : 0);
  args->Set("no_rope_freq", Value::MakeList(std::move(unrotated)));
}

/// moe_layer_freq: 1 where all layers have experts, else a list of 0 and 1, which makes Megatron number its layers.
void SetExpertLayers(const family::Model& model, Value* args) {
  if (!model.letters.contains("experts")) return;
  const auto kinds = model.kinds.find("moe");
  if (kinds == model.kinds.end() || std::find(kinds->second.begin(), kinds->second.end(), false) == kinds->second.end()) {
    args->Set("moe_layer_freq", Value(1));
    return;
  }
  ValueList freq;
  for (const bool moe : kinds->second) freq.emplace_back(moe ? 1 : 0);
  args->Set("moe_layer_freq", Value::MakeList(std::move(freq)));
}

/// linear_attention_freq: 1 for layers of linear attention, 0 for those of full attention (the kind `full`).
void SetLinearLayers(const family::Model& model, Value* args) {
  const auto kinds = model.kinds.find("full");
  if (kinds == model.kinds.end()) return;
  ValueList freq;
  for (const bool full : kinds->second) freq.emplace_back(full ? 0 : 1);
  args->Set("linear_attention_freq", Value::MakeList(std::move(freq)));
}

Result<Value> FromHf(const family::FamilyFile& family, const family::Model& model, const Value& config) {
  const family::Letters& letters = model.letters;
  CROSSDOCK_RETURN_IF_ERROR(CheckConfig(family, config));
  Value args = Value::MakeDict();
  for (const auto& [letter, rule] : family.letters) {
    const std::string name = rule.McoreArgument();
    if (name.empty() || letter == "v" || !Counts(family, model, letter)) continue;
    if (name.find('.') == std::string::npos) args.Set(name, Value(letters.at(letter)));  // else part of an argument that [arguments] carries whole
  }
  const auto groups = letters.find("k");
  args.Set("group_query_attention", Value(groups != letters.end() && groups->second != letters.at("q")));
  for (const auto& [name, path] : family.arguments) {
    const bool negated = path.starts_with('!');
    const Value* value = config.FindPath(negated ? path.substr(1) : path);
    if (negated) {
      args.Set(name, Value(value == nullptr || value->as_bool() == nullptr || !*value->as_bool()));
    } else if (value != nullptr && !value->is_null()) {
      args.Set(name, *value);
    }
  }
  SetUnrotatedLayers(family, config, &args);
  SetExpertLayers(model, &args);
  SetLinearLayers(model, &args);
  if (const std::optional<std::int64_t> length = config.GetInt("max_position_embeddings")) {
    args.Set("max_position_embeddings", Value(*length));
    args.Set("seq_length", Value(*length));
  }
  CROSSDOCK_RETURN_IF_ERROR(SetRope(family, letters, config, &args));
  CROSSDOCK_RETURN_IF_ERROR(SetWindow(family, config, &args));
  const double epsilon = config.GetFloat("rms_norm_eps").value_or(1e-6);
  args.Set("normalization", Value("RMSNorm"));
  args.Set("layernorm_epsilon", Value(epsilon));
  args.Set("norm_epsilon", Value(epsilon));
  const bool untied = model.Holds("untied");
  args.Set("untie_embeddings_and_output_weights", Value(untied));
  args.Set("swiglu", Value(true));
  for (const char* off : {"squared_relu", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "apply_query_key_layer_scaling"}) {
    if (args.GetBool(off) == std::nullopt) args.Set(off, Value(false));
  }
  args.Set("attention_dropout", Value(0.0));
  args.Set("hidden_dropout", Value(0.0));
  args.Set("tokenizer_type", Value());   // a run names its own: where the tokenizer will lie is not known here
  args.Set("tokenizer_model", Value());
  return args;
}

}  // namespace

Result<Value> ArgsFromConfig(const family::FamilyFile& family, const family::Model& model, const family::ModelConfig& config) {
  Value args = Value::MakeDict();
  if (config.words == "mcore") {
    for (const char* name : kArchitecture) {
      if (const Value* value = config.values.Find(name)) args.Set(name, *value);
    }
    for (const auto& [letter, rule] : family.letters) {
      const Value* value = config.values.Find(rule.McoreArgument());
      if (value != nullptr && letter != "v") args.Set(rule.McoreArgument(), *value);
    }
    for (const auto& [name, path] : family.arguments) {
      if (const Value* value = config.values.Find(name)) args.Set(name, *value);
    }
    args.Set("add_position_embedding", Value(config.values.GetBool("add_position_embedding").value_or(true)));
    args.Set("use_rotary_position_embeddings", Value(true));
  } else {
    CROSSDOCK_ASSIGN_OR_RETURN(args, FromHf(family, model, family::TextConfig(family, config).values));
  }
  for (const auto& [flag, text] : family.mcore_flags) {
    if (flag != "position_embedding_type") args.Set(flag, ParseArgument(text));  // yarn only where the model says so
  }
  for (const char* off : {"apply_layernorm_1p", "layernorm_zero_centered_gamma"}) {
    if (!family.States(off)) args.Set(off, Value(false));
  }
  const auto mtp = model.letters.find("mtp");
  args.Set("mtp_num_layers", mtp == model.letters.end() || mtp->second == 0 ? Value() : Value(mtp->second));
  if (!model.letters.contains("experts")) args.Set("num_experts", Value());
  if (!family.States("multi_latent_attention")) args.Set("multi_latent_attention", Value(false));
  if (!args.GetInt("seq_length") || !args.GetInt("max_position_embeddings")) {
    const std::optional<std::int64_t> length = args.GetInt("max_position_embeddings") ? args.GetInt("max_position_embeddings") : args.GetInt("seq_length");
    if (length) {
      args.Set("seq_length", Value(*length));
      args.Set("max_position_embeddings", Value(*length));
    }
  }
  return args;
}

}  // namespace crossdock::dialects::mcore
