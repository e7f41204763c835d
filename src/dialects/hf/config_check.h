// SPDX-License-Identifier: Apache-2.0
/// \file  Values of a configuration that are no sizes: a number where a text stands, or a negative epsilon, would else be
/// read as absent and give another model in silence. Sizes are checked where letters are evaluated (family/bind.h).
/// Absent and null are fine: the readers of config.json have defaults for them.
/// Errors: kCorrupt names file, key, expected and found. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "tensor/value.h"

namespace crossdock::dialects::hf {

enum class FieldKind : std::uint8_t {
  kPositive,     ///< a finite number above 0
  kNotNegative,  ///< a finite number of at least 0
  kFraction,     ///< above 0 and at most 1
  kCount,        ///< a whole number of at least 1
  kWhole,        ///< a whole number of at least 0
  kFlag,         ///< true or false
  kText,
  kTable,        ///< an object
};

struct FieldRule {
  std::string_view path;  ///< dotted
  FieldKind kind = FieldKind::kFlag;
};

/// The first field whose value is not of its kind.
[[nodiscard]] Status CheckFields(const Value& values, std::span<const FieldRule> rules, const std::string& file);

/// The fields of config.json that decide what the model computes.
[[nodiscard]] Status CheckConfigFields(const Value& config, const std::string& file);

}  // namespace crossdock::dialects::hf
