// SPDX-License-Identifier: Apache-2.0
#include "cli/parser.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "crossdock/nearest.h"

namespace crossdock::cli {
namespace {

/// CLI11 would list every positional and option in the usage line; the table has a better one.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) { column_width(28); }
  std::string make_usage(const CLI::App*, std::string) const override { return usage_ + "\n"; }

 private:
  std::string usage_;
};

/// The parser of one command. Every option holds its words; values.h gives them types.
std::unique_ptr<CLI::App> MakeApp(const CommandSpec& command) {
  auto app = std::make_unique<CLI::App>(fmt::format("crossdock {}: {}", command.name, command.help),
                                        fmt::format("crossdock {}", command.name));
  app->set_help_flag("--help,-h", "print this help");
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & command.bit) == 0) continue;
    CLI::Option* option = app->add_option_function<std::vector<std::string>>(
        fmt::format("--{}", spec.name), [](const std::vector<std::string>&) {}, std::string(spec.help));
    option->allow_extra_args(false)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    option->type_name(std::string(spec.arity == Arity::kFlag ? "" : spec.value));
    option->option_text(spec.arity == Arity::kFlag ? " " : std::string(spec.value));
    if (spec.help.empty()) option->group("");
  }
  return app;
}

std::string TopHelp() {
  std::string out =
      "Crossdock carries LLM checkpoints, training state included, between formats.\n"
      "Usage: crossdock COMMAND [options]\n\nCommands:\n";
  for (const CommandSpec& command : CommandTable()) {
    if (command.bit != 0) out += fmt::format("  {:<11} {}\n", command.name, command.help);
  }
  out +=
      "\nTry it:\n"
      "  crossdock demo D\n"
      "  crossdock convert D/full-state D/megatron --to megatron --tp 2 --pp 2\n"
      "  crossdock convert D/megatron D/back --to full-state\n"
      "  crossdock verify D/full-state D/back\n\n"
      "`crossdock COMMAND --help` lists the options of a command.\n"
      "Exit status: 0 done or equal, 1 differences, 2 wrong usage, 3 input not acceptable, 4 I/O failure, 5 interrupted.\n";
  return out;
}

/// What the command line says in another spelling counts too: a word for a path, one of the ways to name a dtype.
bool Given(const OptionSpec& spec, const Request& request) {
  if (request.values.contains(spec.name)) return true;
  if (spec.name == "source") return !request.positionals.empty();
  if (spec.name == "target") return request.positionals.size() > 1 || (request.command->bit == kDemo && !request.positionals.empty());
  constexpr std::string_view kDTypes = "dtype bf16 fp16 fp32";
  if (!ListHas(kDTypes, spec.name)) return false;
  return std::any_of(request.values.begin(), request.values.end(), [&](const auto& value) { return ListHas(kDTypes, value.first); });
}

Status AddEnvironment(const Environment& environment, Request* request) {
  const Request by_words = *request;
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & request->command->bit) == 0 || Given(spec, by_words)) continue;
    const std::string name = EnvironmentName(spec.name);
    const char* text = environment(name.c_str());
    if (text == nullptr || *text == '\0') continue;
    std::string value = text;
    if (spec.arity == Arity::kFlag) {
      std::optional<std::string> parsed = ParseBool(value);
      if (!parsed) {
        return MakeError(ErrorCode::kUsage, fmt::format("the environment variable `{}` takes true or false", name))
            .WithFound(fmt::format("`{}`", Printable(value)));
      }
      value = *parsed;
    }
    request->values[std::string(spec.name)] = {value};
  }
  return OkStatus();
}

}  // namespace

std::string EnvironmentName(std::string_view option) {
  std::string name = "CROSSDOCK_";
  for (char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::string> UnknownVariables(const std::vector<std::string>& names) {
  constexpr std::string_view kPrefix = "CROSSDOCK_";
  // Of the scripts beside the program.
  constexpr std::string_view kOthers = "CROSSDOCK_BUILD_JOBS CROSSDOCK_ENV_DIR CROSSDOCK_KILLS CROSSDOCK_MATRIX CROSSDOCK_SEED CROSSDOCK_SITE CROSSDOCK_PREFIX";
  std::vector<std::string> known;
  for (const OptionSpec& spec : OptionTable()) known.push_back(EnvironmentName(spec.name));
  const std::vector<std::string_view> candidates(known.begin(), known.end());
  std::vector<std::string> notices;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || ListHas(kOthers, name) || std::ranges::find(known, name) != known.end()) continue;
    std::string option = name.substr(kPrefix.size());
    std::ranges::transform(option, option.begin(), [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
    const OptionSpec* alias = FindOption(option);
    const std::string meant = alias != nullptr ? EnvironmentName(alias->name) : std::string(Nearest(name, candidates));
    notices.push_back(fmt::format("the environment variable `{}` sets nothing{}", Printable(name), meant.empty() ? "" : "; did you mean `" + meant + "`?"));
  }
  std::ranges::sort(notices);
  return notices;
}

std::vector<std::string> Request::All(std::string_view name) const {
  const auto it = values.find(name);
  return it == values.end() ? std::vector<std::string>() : it->second;
}

Result<std::optional<std::string>> Request::One(std::string_view name) const {
  const std::vector<std::string> all = All(name);
  if (all.empty()) return std::optional<std::string>();
  for (const std::string& other : all) {
    if (other != all.front()) {
      return MakeError(ErrorCode::kUsage, fmt::format("`--{}` was given twice with different values", name))
          .WithFound(fmt::format("`{}` and `{}`", Printable(all.front()), Printable(other)));
    }
  }
  return std::optional<std::string>(all.front());
}

bool Request::Flag(std::string_view name) const {
  const auto it = values.find(name);
  return it != values.end() && !it->second.empty() && it->second.back() == "true";
}

Result<Request> ParseWords(const Words& words, const Environment& environment) {
  Request request;
  request.command = words.command;
  request.positionals = words.positionals;
  const std::unique_ptr<CLI::App> app = MakeApp(*words.command);
  // CLI11 takes its words from the back.
  std::vector<std::string> reversed(words.options.rbegin(), words.options.rend());
  try {
    app->parse(reversed);
  } catch (const CLI::Error& error) {
    // The pre-pass has refused what a user can get wrong; this fence keeps the library's exceptions in here.
    return MakeError(ErrorCode::kUsage, error.what());
  }
  for (const CLI::Option* option : app->get_options()) {
    if (option->count() != 0) request.values[option->get_lnames().front()] = option->results();
  }
  CROSSDOCK_RETURN_IF_ERROR(AddEnvironment(environment, &request));
  return request;
}

std::string HelpText(const CommandSpec* command) {
  if (command == nullptr) return TopHelp();
  const std::unique_ptr<CLI::App> app = MakeApp(*command);
  app->formatter(std::make_shared<HelpFormatter>(fmt::format("Usage: crossdock {} {}", command->name, command->usage)));
  app->footer(
      "Hyphen and underscore are the same in option names; options of other converters are taken by their own names\n"
      "(docs/reference/cli.md). Every option can also be set in the environment, e.g. CROSSDOCK_THREADS=4.");
  return app->help();
}

}  // namespace crossdock::cli
