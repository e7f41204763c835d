// SPDX-License-Identifier: Apache-2.0
#include "family/model.h"

#include <algorithm>

#include "family/formula.h"
#include "family/row_syntax.h"
#include "family/text_config.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::family {
namespace {

/// No model comes near; keeps products of a few letters within int64.
constexpr std::int64_t kMaxLetter = std::int64_t{1} << 31U;

/// Only what may be absent altogether (multi-token prediction, say) may be 0; its file says `default = "0"`.
std::int64_t LeastOf(const LetterRule& rule) { return rule.fallback == "0" ? 0 : 1; }

/// The value at the first alternative that is present, nothing when none is.
Result<std::optional<std::int64_t>> FromConfig(const std::string& letter, const LetterRule& rule, const ModelConfig& config) {
  const auto paths = rule.paths.find(config.words);
  if (paths == rule.paths.end()) return std::optional<std::int64_t>();
  for (const std::string& alternative : paths->second) {
    const std::size_t mark = alternative.find('?');
    std::string path = Trim(std::string_view(alternative).substr(0, mark));
    const bool counted = path.starts_with("len(") && path.ends_with(')');
    const bool first = path.starts_with("first(") && path.ends_with(')');
    if (counted || first) path = path.substr(path.find('(') + 1, path.size() - path.find('(') - 2);
    const Value* value = config.values.FindPath(path);
    if (value == nullptr || value->is_null()) continue;
    if (mark != std::string::npos) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool counts, EvaluateCondition(std::string_view(alternative).substr(mark + 1), config.values));
      if (!counts) continue;
    }
    const ValueList* list = value->as_sequence();
    std::optional<std::int64_t> number;
    if (counted) {
      if (list != nullptr) number = static_cast<std::int64_t>(list->size());
    } else if (first && list != nullptr) {
      if (!list->empty() && list->front().as_int() != nullptr) number = *list->front().as_int();
    } else {
      number = config.values.GetInt(path);
    }
    const std::int64_t least = LeastOf(rule);
    const std::int64_t most = letter == "layers" ? kMaxIndex : kMaxLetter;
    if (number && *number == 0 && least == 1 && !rule.fallback.empty()) continue;  // as if it were absent
    if (!number || *number < least || *number > most) {
      return MakeError(ErrorCode::kCorrupt, fmt::format("{} in the configuration is no size of a model (letter {})", path, letter))
          .WithExpected(fmt::format("a whole number from {} to {}", least, most))
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

/// What the configuration calls a letter: its first path.
std::string NameOf(const FamilyFile& family, const std::string& letter, const ModelConfig& config) {
  const LetterRule& rule = family.letters.at(letter);
  const auto paths = rule.paths.find(config.words);
  if (paths == rule.paths.end() || paths->second.empty()) return "letter " + letter;
  return Trim(std::string_view(paths->second.front()).substr(0, paths->second.front().find('?')));
}

/// Query heads come in equal groups, one for each key and value head.
Status CheckHeads(const FamilyFile& family, const ModelConfig& config, const Letters& letters) {
  const auto heads = letters.find("q");
  const auto groups = letters.find("k");
  if (heads == letters.end() || groups == letters.end() || heads->second % groups->second == 0) return OkStatus();
  const std::string of = NameOf(family, "k", config);
  return MakeError(ErrorCode::kCorrupt, fmt::format("{} in the configuration is no multiple of {}", NameOf(family, "q", config), of))
      .WithExpected(fmt::format("a multiple of {} {}", of, groups->second))
      .WithFound(std::to_string(heads->second));
}

/// Sets a letter from a formula; false when it needs letters that are not known yet.
Result<bool> TakeFallback(const FamilyFile& family, const std::string& letter, const std::string& fallback, Letters* letters) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Formula formula, ParseFormula(fallback));
  const std::vector<std::string> names = NamesOf(formula);
  if (!std::all_of(names.begin(), names.end(), [&](const std::string& name) { return letters->contains(name); })) return false;
  const Result<std::int64_t> value = EvaluateInteger(fallback, *letters);
  if (!value || *value < LeastOf(family.letters.at(letter)) || *value > kMaxLetter) {
    return MakeError(ErrorCode::kCorrupt, fmt::format("the configuration gives no value for the family {}'s letter {}", family.name, letter))
        .WithExpected(fmt::format("a whole number from {}", fallback))
        .WithFound(value ? std::to_string(*value) : value.error().message);
  }
  (*letters)[letter] = *value;
  return true;
}

}  // namespace

Result<Letters> EvaluateLetters(const FamilyFile& family, const ModelConfig& whole) {
  const ModelConfig config = TextConfig(family, whole);
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
  // A fallback may need another one: go round until nothing more can be computed, then take one of the last ones.
  while (!open.empty()) {
    const std::size_t before = open.size();
    for (auto letter = open.begin(); letter != open.end();) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool computed, TakeFallback(family, *letter, family.letters.at(*letter).fallback, &letters));
      letter = computed ? open.erase(letter) : letter + 1;
    }
    if (open.size() != before) continue;
    const auto last = std::find_if(open.begin(), open.end(), [&](const std::string& letter) { return !family.letters.at(letter).last_fallback.empty(); });
    if (last == open.end()) return NoValue(family, open.front(), family.letters.at(open.front()), config);
    CROSSDOCK_ASSIGN_OR_RETURN(const bool computed, TakeFallback(family, *last, family.letters.at(*last).last_fallback, &letters));
    if (!computed) return NoValue(family, *last, family.letters.at(*last), config);
    open.erase(last);
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckHeads(family, config, letters));
  return letters;
}

Result<std::vector<std::string>> EvaluateConditions(const FamilyFile& family, const ModelConfig& whole) {
  const ModelConfig config = TextConfig(family, whole);
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

bool Model::Holds(std::string_view word) const { return std::find(conditions.begin(), conditions.end(), word) != conditions.end(); }

bool Model::Homogeneous() const {
  return std::all_of(kinds.begin(), kinds.end(), [](const auto& kind) {
    const std::vector<bool>& layers = kind.second;
    return std::find(layers.begin(), layers.end(), true) == layers.end() || std::find(layers.begin(), layers.end(), false) == layers.end();
  });
}

Result<LayerKinds> EvaluateKinds(const FamilyFile& family, const ModelConfig& whole, std::int64_t layers) {
  const ModelConfig config = TextConfig(family, whole);
  LayerKinds kinds;
  for (const auto& [word, rules] : family.layer_kinds) {
    const auto rule = rules.find(config.words);
    if (rule == rules.end()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("the family {} does not say which layers are {} by a configuration of the kind {}", family.name, word, config.words));
    }
    std::vector<bool>& of = kinds[word];
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool holds, EvaluateCondition(rule->second, config.values, {{"l", layer}}));
      of.push_back(holds);
    }
  }
  return kinds;
}

Result<Model> EvaluateModel(const FamilyFile& family, const ModelConfig& config) {
  Model model;
  CROSSDOCK_ASSIGN_OR_RETURN(model.letters, EvaluateLetters(family, config));
  CROSSDOCK_ASSIGN_OR_RETURN(model.conditions, EvaluateConditions(family, config));
  if (family.layer_kinds.empty()) return model;
  const auto layers = model.letters.find("layers");
  if (layers == model.letters.end() || layers->second > kMaxIndex) {
    return MakeError(ErrorCode::kUsage, fmt::format("the family {} tells kinds of layers apart, for which the letter layers must count at most {}", family.name, kMaxIndex));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(model.kinds, EvaluateKinds(family, config, layers->second));
  return model;
}

}  // namespace crossdock::family
