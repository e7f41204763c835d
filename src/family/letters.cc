// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "family/bind.h"
#include "family/formula.h"
#include "family/row_syntax.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::family {
namespace {

/// No model comes near; keeps products of a few letters within int64.
constexpr std::int64_t kMaxLetter = std::int64_t{1} << 31U;

/// The value at the first alternative that is present, nothing when none is.
Result<std::optional<std::int64_t>> FromConfig(const std::string& letter, const LetterRule& rule, const ModelConfig& config) {
  const auto paths = rule.paths.find(config.words);
  if (paths == rule.paths.end()) return std::optional<std::int64_t>();
  for (const std::string& alternative : paths->second) {
    const std::size_t mark = alternative.find('?');
    const std::string path = Trim(std::string_view(alternative).substr(0, mark));
    const Value* value = config.values.FindPath(path);
    if (value == nullptr || value->is_null()) continue;
    if (mark != std::string::npos) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool counts, EvaluateCondition(std::string_view(alternative).substr(mark + 1), config.values));
      if (!counts) continue;
    }
    const std::optional<std::int64_t> number = config.values.GetInt(path);
    if (!number || *number < 1 || *number > kMaxLetter) {
      return MakeError(ErrorCode::kCorrupt, fmt::format("{} in the configuration is no size of a model (letter {})", path, letter))
          .WithExpected(fmt::format("a whole number from 1 to {}", kMaxLetter))
          .WithFound(Printable(ToJson(*value, 0), 80));
    }
    return number;
  }
  return std::optional<std::int64_t>();
}

Error NoValue(const FamilyFile& family, const std::string& letter, const LetterRule& rule, const ModelConfig& config) {
  const auto paths = rule.paths.find(config.words);
  Error error = MakeError(ErrorCode::kIncomplete, fmt::format("the configuration does not say the family {}'s letter {}", family.name, letter));
  if (paths != rule.paths.end()) error.expected = fmt::format("a value for {}", fmt::join(paths->second, " or "));
  error.hint = config.words == "hf" ? "complete config.json" : "give a configuration with --hf-template DIR";
  return error;
}

}  // namespace

Result<Letters> EvaluateLetters(const FamilyFile& family, const ModelConfig& config) {
  Letters letters;
  std::vector<std::string> open;
  for (const auto& [letter, rule] : family.letters) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::int64_t> value, FromConfig(letter, rule, config));
    if (value) {
      letters[letter] = *value;
    } else {
      if (rule.fallback.empty()) return NoValue(family, letter, rule, config);
      open.push_back(letter);
    }
  }
  // A fallback may need another one: go round until nothing more can be computed.
  while (!open.empty()) {
    const std::size_t before = open.size();
    for (auto letter = open.begin(); letter != open.end();) {
      const std::string& fallback = family.letters.at(*letter).fallback;
      CROSSDOCK_ASSIGN_OR_RETURN(const Formula formula, ParseFormula(fallback));
      const std::vector<std::string> names = NamesOf(formula);
      if (!std::all_of(names.begin(), names.end(), [&](const std::string& name) { return letters.contains(name); })) {
        ++letter;
        continue;
      }
      Result<std::int64_t> value = EvaluateInteger(fallback, letters);
      if (!value || *value < 1 || *value > kMaxLetter) {
        return MakeError(ErrorCode::kCorrupt, fmt::format("the configuration gives no value for the family {}'s letter {}", family.name, *letter))
            .WithExpected(fmt::format("a whole number from {}", fallback))
            .WithFound(value ? std::to_string(*value) : value.error().message);
      }
      letters[*letter] = *value;
      letter = open.erase(letter);
    }
    if (open.size() == before) return NoValue(family, open.front(), family.letters.at(open.front()), config);
  }
  return letters;
}

Result<std::vector<std::string>> EvaluateConditions(const FamilyFile& family, const ModelConfig& config) {
  std::vector<std::string> holding;
  for (const auto& [word, rules] : family.conditions) {
    const auto rule = rules.find(config.words);
    if (rule == rules.end()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("the family {} does not say how to read its condition {} from a configuration of the kind {}", family.name, word, config.words));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const bool holds, EvaluateCondition(rule->second, config.values));
    if (holds) holding.push_back(word);
  }
  return holding;
}

}  // namespace crossdock::family
