// SPDX-License-Identifier: Apache-2.0
#include "cli/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace crossdock::cli {
namespace {

Error UsageError(std::string message) { return MakeError(ErrorCode::kUsage, std::move(message)); }

std::string HelpHint(const CommandSpec& command) {
  return fmt::format("`crossdock {} --help` lists the options", command.name);
}

/// MaxText's configuration words that mean something to a conversion.
struct KeyWord {
  std::string_view key, option;
};
constexpr std::array kKeyWords = {
    KeyWord{"model_name", "family"}, KeyWord{"base_output_directory", "target"}, KeyWord{"scan_layers", "scan-layers"},
    KeyWord{"opt_type", "opt-type"}, KeyWord{"save_dtype", "dtype"},
};

bool IsKeyWord(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  return std::ranges::all_of(word.substr(0, equals), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

/// One pass; a class only because every step needs the position.
class Pass {
 public:
  Pass(const std::vector<std::string>& args, const std::function<bool(const std::string&)>& exists)
      : args_(args), exists_(exists) {}

  Result<Words> Run() {
    CROSSDOCK_RETURN_IF_ERROR(FindTheCommand());
    if (out_.help || out_.version || out_.command == nullptr) return std::move(out_);
    for (at_ = 0; at_ < args_.size(); ++at_) {
      if (at_ == command_at_) continue;
      CROSSDOCK_RETURN_IF_ERROR(Word(args_[at_]));
      if (out_.help) return std::move(out_);
    }
    return std::move(out_);
  }

 private:
  Status FindTheCommand() {
    for (std::size_t i = 0; i < args_.size(); ++i) {
      const std::string& word = args_[i];
      if (word == "--help" || word == "-h" || word == "help") {
        // `crossdock help convert` and `crossdock --help convert` explain the command.
        out_.help = true;
        if (i + 1 < args_.size()) out_.command = FindCommand(args_[i + 1]);
        return OkStatus();
      }
      if (word == "--version" || word == "-V") {
        out_.version = true;
        return OkStatus();
      }
      if (word.starts_with("-")) {
        const OptionSpec* spec = FindOption(std::string_view(word).substr(std::min(word.find_first_not_of('-'), word.size())));
        if (spec != nullptr && spec->arity == Arity::kOne) ++i;  // its value is no command
        continue;
      }
      out_.command = FindCommand(word);
      command_at_ = i;
      if (out_.command != nullptr) return OkStatus();
      const std::string_view nearest = NearestCommand(word);
      return UsageError(fmt::format("unknown command `{}`", Printable(word)))
          .WithHint(nearest.empty() ? "`crossdock --help` lists the commands" : fmt::format("did you mean `{}`?", nearest));
    }
    return OkStatus();
  }

  Status Word(const std::string& word) {
    if (only_positionals_ || word.size() < 2 || word[0] != '-') return Positional(word);
    if (word == "--") {
      only_positionals_ = true;
      return OkStatus();
    }
    if (word == "--help" || word == "-h") {
      out_.help = true;
      return OkStatus();
    }
    const std::string_view body = std::string_view(word).substr(word[1] == '-' ? 2 : 1);
    const std::size_t equals = body.find('=');
    const std::string_view spelling = body.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string_view::npos) value = std::string(body.substr(equals + 1));
    return Option(word.substr(0, word.find('=')), spelling, std::move(value));
  }

  Status Option(const std::string& shown, std::string_view spelling, std::optional<std::string> value) {
    const OptionSpec* spec = FindOption(spelling);
    if (spec == nullptr) {
      const std::string_view nearest = NearestOption(spelling, out_.command->bit);
      Error error = UsageError(fmt::format("unknown option `{}` of `crossdock {}`", Printable(shown), out_.command->name));
      if (nearest.empty()) return std::move(error).WithHint(HelpHint(*out_.command));
      return std::move(error).WithHint(fmt::format("did you mean `--{}`?", nearest));
    }
    if ((spec->commands & out_.command->bit) == 0) {
      return UsageError(fmt::format("`{}` does not apply to `crossdock {}`", shown, out_.command->name))
          .WithHint(HelpHint(*out_.command));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(std::string settled, SettleValue(*spec, shown, std::move(value)));
    return Emit(*spec, settled);
  }

  Status Emit(const OptionSpec& spec, const std::string& value) {
    out_.options.push_back(fmt::format("--{}={}", spec.name, value));
    return OkStatus();
  }

  Result<std::string> SettleValue(const OptionSpec& spec, const std::string& shown, std::optional<std::string> value) {
    switch (spec.arity) {
      case Arity::kFlag: {
        if (!value) return std::string("true");
        std::optional<std::string> parsed = ParseBool(*value);
        if (parsed) return *parsed;
        return UsageError(fmt::format("`{}` takes true or false", shown))
            .WithFound(fmt::format("`{}`", Printable(*value)));
      }
      case Arity::kOptional: {
        if (!value && at_ + 1 < args_.size() && ListHas(spec.values, args_[at_ + 1])) return args_[++at_];
        const std::optional<std::string> parsed = value ? ParseBool(*value) : std::optional<std::string>("true");
        return parsed.value_or(value.value_or(""));
      }
      case Arity::kOne:
        if (value ? value->empty() : at_ + 1 < args_.size() && args_[at_ + 1].empty()) {
          // `--to "$FORMAT"` with a variable that is not set.
          return UsageError(fmt::format("`{}` needs a value", shown)).WithFound("an empty word").WithHint(HelpHint(*out_.command));
        }
        if (value) return *std::move(value);
        return Next(shown);
      case Arity::kTwo: {
        if (value) return *std::move(value);
        CROSSDOCK_ASSIGN_OR_RETURN(std::string first, Next(shown));
        CROSSDOCK_ASSIGN_OR_RETURN(std::string second, Next(shown));
        return first + "," + second;
      }
    }
    return std::string();
  }

  Result<std::string> Next(const std::string& shown) {
    const bool there = at_ + 1 < args_.size() && at_ + 1 != command_at_;
    // A word with two dashes is the next option, not a value: `--tp --pp 2` has forgotten one.
    if (!there || args_[at_ + 1].starts_with("--")) {
      return UsageError(fmt::format("`{}` needs a value", shown)).WithHint(HelpHint(*out_.command));
    }
    return args_[++at_];
  }

  Status Positional(const std::string& word) {
    if (only_positionals_ || !IsKeyWord(word) || exists_(word)) {
      out_.positionals.push_back(word);
      return OkStatus();
    }
    const std::size_t equals = word.find('=');
    for (const KeyWord& key : kKeyWords) {
      if (std::string_view(word).substr(0, equals) == key.key) {
        return Option(word.substr(0, equals), key.option, word.substr(equals + 1));
      }
    }
    out_.notices.push_back(fmt::format("`{}` is ignored: it says nothing about a conversion", Printable(word)));
    return OkStatus();
  }

  const std::vector<std::string>& args_;
  const std::function<bool(const std::string&)>& exists_;
  Words out_;
  std::size_t at_ = 0;
  std::size_t command_at_ = static_cast<std::size_t>(-1);
  bool only_positionals_ = false;
};

}  // namespace

std::optional<std::string> ParseBool(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ListHas("true 1 yes on", lower)) return "true";
  if (ListHas("false 0 no off", lower)) return "false";
  return std::nullopt;
}

Result<Words> SettleWords(const std::vector<std::string>& args, const std::function<bool(const std::string&)>& exists) {
  return Pass(args, exists).Run();
}

bool WantsJson(const std::vector<std::string>& args) {
  bool wants = false;
  for (const std::string& word : args) {
    if (word == "--") break;
    if (word == "--json") wants = true;
    if (word.starts_with("--json=")) wants = ParseBool(std::string_view(word).substr(7)) == "true";
  }
  return wants;
}

}  // namespace crossdock::cli
