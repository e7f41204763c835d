// SPDX-License-Identifier: Apache-2.0
/// \file  Every option of the command line as data: its name, the spellings people bring along, its arity, and the
/// commands that take it. The pre-pass (words.h), the parser (parser.h) and the help all read this one table.
/// Invariant: names and aliases are unique and hyphenated. Threads: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace crossdock::cli {

enum class Arity : std::uint8_t {
  kFlag,      ///< `--x`, `--x=true|false`
  kOne,       ///< `--x VALUE`, `--x=VALUE`
  kTwo,       ///< `--x R C`, joined as "R,C"
  kOptional,  ///< `--x [VALUE]`: the next word is its value only when `values` lists it
};

/// Commands as bits.
enum Commands : unsigned {
  kConvert = 1U << 0U,
  kPlan = 1U << 1U,
  kManifest = 1U << 2U,
  kRoundtrip = 1U << 3U,
  kInspect = 1U << 4U,
  kVerify = 1U << 5U,
  kFamilies = 1U << 6U,
  kDemo = 1U << 7U,
  kResumePlan = 1U << 8U,
  kQuantize = 1U << 9U,
  kWatch = 1U << 10U,
};
/// What divides a target, or says which it is.
inline constexpr unsigned kTargeting = kConvert | kPlan | kManifest | kRoundtrip;
inline constexpr unsigned kConverting = kTargeting | kQuantize | kWatch;
inline constexpr unsigned kQuantizing = kConvert | kPlan | kManifest | kQuantize | kWatch;
inline constexpr unsigned kReading = kConverting | kInspect | kVerify;
inline constexpr unsigned kEvery = kReading | kFamilies | kDemo | kResumePlan;

struct OptionSpec {
  std::string_view name;
  std::string_view aliases;      ///< separated by spaces
  Arity arity = Arity::kOne;
  std::string_view value;        ///< placeholder in the help
  unsigned commands = 0;
  std::string_view help;         ///< empty: not shown (a spelling that only scripts use)
  bool repeatable = false;
  std::string_view values = {};  ///< kOptional: the words that are values
};

[[nodiscard]] std::span<const OptionSpec> OptionTable();
/// By name or alias, hyphens and underscores alike, without the leading dashes; null when unknown.
[[nodiscard]] const OptionSpec* FindOption(std::string_view spelling);
/// The known spelling, alias or main name, nearest to a misspelt one among the options of `commands`, or empty.
[[nodiscard]] std::string_view NearestOption(std::string_view spelling, unsigned commands);
/// True when `word` is one of the space-separated words of `list`.
[[nodiscard]] bool ListHas(std::string_view list, std::string_view word);

struct CommandSpec {
  std::string_view name;
  unsigned bit = 0;
  std::string_view usage;        ///< after the command's name
  std::string_view help;
};
[[nodiscard]] std::span<const CommandSpec> CommandTable();
[[nodiscard]] const CommandSpec* FindCommand(std::string_view name);
[[nodiscard]] std::string_view NearestCommand(std::string_view word);  ///< or empty

}  // namespace crossdock::cli
