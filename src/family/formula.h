// SPDX-License-Identifier: Apache-2.0
/// \file  Formulas of family files: integers over letters ("q*d", "h/q"), factors ("1/sqrt(d)"), and conditions over
/// a configuration ("!tie_word_embeddings", "rope_scaling.rope_type == 'llama3'").
/// Grammar: || over && over == != <= >= < > in over + - over * / % over unary ! - over numbers, 'strings', names, name[x], sqrt(x), bf16(x), (x).
/// Errors: kUsage for a formula that cannot be read or evaluated; division must be exact where integers are wanted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"
#include "tensor/value.h"

namespace crossdock::family {

/// The parsed form; immutable.
struct Formula {
  enum class Kind : std::uint8_t { kNumber, kString, kName, kCall, kIndex, kUnary, kBinary };
  Kind kind = Kind::kNumber;
  std::string text;                       ///< operator, name, or the literal as written
  std::vector<Formula> inputs;
};

[[nodiscard]] Result<Formula> ParseFormula(std::string_view text);
/// All names that occur, in order of occurrence.
[[nodiscard]] std::vector<std::string> NamesOf(const Formula& formula);

[[nodiscard]] Result<std::int64_t> EvaluateInteger(std::string_view text, const std::map<std::string, std::int64_t>& letters);
[[nodiscard]] Result<double> EvaluateReal(std::string_view text, const std::map<std::string, std::int64_t>& letters);
/// Names are those of `locals`, else dotted paths; absent ones and null are false, and equal to nothing. `x in list`,
/// `list[x]`, and `%` are for what a configuration says layer by layer.
[[nodiscard]] Result<bool> EvaluateCondition(std::string_view text, const Value& config, const std::map<std::string, std::int64_t>& locals = {});

}  // namespace crossdock::family
