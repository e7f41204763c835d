// SPDX-License-Identifier: Apache-2.0
/// \file  The rotary embedding as config.json says it, in both of its spellings: `rope_theta` and `rope_scaling` (up to
/// transformers 4), `rope_parameters` (5 on, which also reads the old ones).
/// Errors: kUnsupported for parameters an architecture keeps for each kind of layer. Threads: plain values.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "crossdock/result.h"
#include "tensor/value.h"

namespace crossdock::dialects::hf {

struct Rope {
  std::optional<double> theta;
  std::string type = "default";            ///< "linear", "llama3", "yarn", ...
  Value factors = Value::MakeDict();       ///< what else the scaling says, without type and theta

  /// Numbers count by value: 8 is 8.0.
  [[nodiscard]] bool SameScaling(const Rope& other) const;
};

/// Yarn under multi-latent attention: the field of config.json's scaling, Megatron's argument (megatron-core 0.19.2, MLATransformerConfig).
inline constexpr std::array kLatentYarn = {
    std::pair{"factor", "rotary_scaling_factor"}, std::pair{"original_max_position_embeddings", "original_max_position_embeddings"},
    std::pair{"beta_fast", "beta_fast"},          std::pair{"beta_slow", "beta_slow"},
    std::pair{"mscale", "mscale"},                std::pair{"mscale_all_dim", "mscale_all_dim"}};

/// What a config.json says; an empty Rope when it says nothing.
[[nodiscard]] Rope ReadRope(const Value& config);

/// Writes theta and scaling in the spellings that `config` has already, or in both when it has none.
void WriteRope(const Rope& rope, Value* config);

/// True for the types whose meaning is known here: a checkpoint's scaling can be compared with a template's.
[[nodiscard]] bool IsKnownRopeType(const std::string& type);

}  // namespace crossdock::dialects::hf
