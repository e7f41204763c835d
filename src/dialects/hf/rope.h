// SPDX-License-Identifier: Apache-2.0
/// \file  The rotary embedding as config.json says it, in both of its spellings: `rope_theta` and `rope_scaling` (up to
/// transformers 4), `rope_parameters` (5 on, which also reads the old ones).
/// Errors: kUnsupported for parameters an architecture keeps for each kind of layer. Threads: plain values.
#pragma once

#include <optional>
#include <string>

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

/// What a config.json says; an empty Rope when it says nothing.
[[nodiscard]] Rope ReadRope(const Value& config);

/// Writes theta and scaling in the spellings that `config` has already, or in both when it has none.
void WriteRope(const Rope& rope, Value* config);

/// True for the types whose meaning is known here: a checkpoint's scaling can be compared with a template's.
[[nodiscard]] bool IsKnownRopeType(const std::string& type);

}  // namespace crossdock::dialects::hf
