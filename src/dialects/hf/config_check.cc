// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/config_check.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>

namespace crossdock::dialects::hf {
namespace {

using enum FieldKind;

/// Names: transformers 5.24, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config and modeling_rope_utils.
constexpr std::array kConfigFields = {
    FieldRule{"rms_norm_eps", kNotNegative},
    FieldRule{"rope_theta", kPositive},
    FieldRule{"rope_scaling", kTable},
    FieldRule{"rope_scaling.type", kText},
    FieldRule{"rope_scaling.rope_type", kText},
    FieldRule{"rope_scaling.factor", kPositive},
    FieldRule{"rope_scaling.low_freq_factor", kPositive},
    FieldRule{"rope_scaling.high_freq_factor", kPositive},
    FieldRule{"rope_scaling.original_max_position_embeddings", kCount},
    FieldRule{"rope_parameters", kTable},
    FieldRule{"rope_parameters.rope_type", kText},
    FieldRule{"rope_parameters.rope_theta", kPositive},
    FieldRule{"rope_parameters.factor", kPositive},
    FieldRule{"rope_parameters.low_freq_factor", kPositive},
    FieldRule{"rope_parameters.high_freq_factor", kPositive},
    FieldRule{"rope_parameters.original_max_position_embeddings", kCount},
    FieldRule{"rope_parameters.partial_rotary_factor", kFraction},
    FieldRule{"partial_rotary_factor", kFraction},
    FieldRule{"max_position_embeddings", kCount},
    FieldRule{"sliding_window", kNotNegative},  // 0: none, as transformers writes it where use_sliding_window is off
    FieldRule{"use_sliding_window", kFlag},
    FieldRule{"max_window_layers", kNotNegative},
    FieldRule{"tie_word_embeddings", kFlag},
    FieldRule{"attention_bias", kFlag},
    FieldRule{"mlp_bias", kFlag},
    FieldRule{"hidden_act", kText},
};

bool Fits(const Value& value, FieldKind kind) {
  const std::optional<double> number = value.as_int() != nullptr     ? std::optional<double>(static_cast<double>(*value.as_int()))
                                       : value.as_float() != nullptr ? std::optional<double>(*value.as_float())
                                                                     : std::nullopt;
  const bool finite = number && std::isfinite(*number);
  switch (kind) {
    case kPositive: return finite && *number > 0;
    case kNotNegative: return finite && *number >= 0;
    case kFraction: return finite && *number > 0 && *number <= 1;
    case kCount: return finite && *number >= 1 && std::trunc(*number) >= *number;
    case kWhole: return finite && *number >= 0 && std::trunc(*number) >= *number;
    case kFlag: return value.as_bool() != nullptr;
    case kText: return value.as_string() != nullptr;
    case kTable: return value.as_dict() != nullptr;
  }
  return false;
}

std::string_view Describe(FieldKind kind) {
  switch (kind) {
    case kPositive: return "a number above 0";
    case kNotNegative: return "a number of at least 0";
    case kFraction: return "a number above 0 and at most 1";
    case kCount: return "a whole number of at least 1";
    case kWhole: return "a whole number of at least 0";
    case kFlag: return "true or false";
    case kText: return "a text";
    case kTable: return "an object";
  }
  return "";
}

}  // namespace

Status CheckFields(const Value& values, std::span<const FieldRule> rules, const std::string& file) {
  for (const FieldRule& rule : rules) {
    const Value* value = values.FindPath(rule.path);
    if (value == nullptr || value->is_null() || Fits(*value, rule.kind)) continue;
    return MakeError(ErrorCode::kCorrupt, fmt::format("the configuration's `{}` cannot be what it says", rule.path))
        .WithPath(file)
        .WithExpected(std::string(Describe(rule.kind)))
        .WithFound(Printable(ToJson(*value, 0), 80))
        .WithHint("correct it: another value would be another model");
  }
  return OkStatus();
}

Status CheckConfigFields(const Value& config, const std::string& file) {
  if (const Value* text = config.Find("text_config"); text != nullptr && text->as_dict() != nullptr) {
    CROSSDOCK_RETURN_IF_ERROR(CheckFields(*text, kConfigFields, file));
  }
  return CheckFields(config, kConfigFields, file);
}

}  // namespace crossdock::dialects::hf
