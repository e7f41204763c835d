// SPDX-License-Identifier: Apache-2.0
#include "crossdock/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/words.h"

namespace crossdock::cli {
namespace {

/// Python's spelling of an option or a command.
std::string Underscored(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '-', '_');
  return out;
}

std::string Quoted(std::string_view name) { return "`" + Printable(name) + "`"; }

constexpr std::string_view kOfTerminals = "progress quiet verbose json";
/// What a view takes of the options of a conversion.
constexpr std::string_view kOfViews =
    "from loader step family model-size rules hf-template hf-model dtype bf16 fp16 fp32 keep-dtype experts mtp params-from scan-axis set allow memory threads";

/// What is called, under the name that messages give it.
struct Called {
  std::string name;
  const CommandSpec* command = nullptr;   ///< whose options are taken
  bool view = false;                      ///< of them those of a view
};

bool Takes(const Called& called, const OptionSpec& spec) {
  return (spec.commands & called.command->bit) != 0 && (called.view ? ListHas(kOfViews, spec.name) : !ListHas(kOfTerminals, spec.name));
}

Result<const OptionSpec*> OptionOf(const Called& called, const std::string& name) {
  const OptionSpec* spec = FindOption(name);
  if (spec != nullptr && Takes(called, *spec)) return spec;
  std::string_view nearest = spec == nullptr ? NearestOption(name, called.command->bit) : std::string_view();
  if (!nearest.empty() && !Takes(called, *FindOption(nearest))) nearest = {};
  return MakeError(ErrorCode::kUsage, fmt::format("`{}` takes no {}", called.name, Quoted(name)))
      .WithHint(nearest.empty() ? fmt::format("`crossdock {} --help` lists the options", called.command->name)
                                : fmt::format("did you mean `{}`?", Underscored(nearest)));
}

/// The words that the command line would have been given, and what its parser makes of them.
Result<Request> RequestOf(const Called& called, const Call& call, const Machine& machine) {
  std::vector<std::string> args = {std::string(called.command->name)};
  for (const auto& [name, texts] : call.options) {
    CROSSDOCK_ASSIGN_OR_RETURN(const OptionSpec* spec, OptionOf(called, name));
    if (!spec->repeatable) {
      args.push_back(fmt::format("--{}={}", spec->name, fmt::join(texts, ",")));
      continue;
    }
    for (const std::string& text : texts) args.push_back(fmt::format("--{}={}", spec->name, text));
  }
  args.emplace_back("--");
  args.insert(args.end(), call.paths.begin(), call.paths.end());
  CROSSDOCK_ASSIGN_OR_RETURN(const Words words, SettleWords(args, machine.exists));
  Request request;
  request.command = called.command;
  request.positionals = words.positionals;
  request.by_program = true;
  for (const std::string& word : words.options) {
    const std::size_t equals = word.find('=');
    request.values[word.substr(2, equals - 2)].push_back(word.substr(equals + 1));
  }
  return request;
}

/// The command that is called by its own name.
Result<Called> CommandOf(const std::string& name) {
  const CommandSpec* command = FindCommand(name);
  if (command != nullptr) return Called{Underscored(command->name), command};
  const std::string_view nearest = NearestCommand(name);
  return MakeError(ErrorCode::kUsage, fmt::format("there is no command {}", Quoted(name)))
      .WithHint(nearest.empty() ? "" : fmt::format("did you mean `{}`?", nearest));
}

}  // namespace
}  // namespace crossdock::cli

namespace crossdock {

Result<Report> RunCall(const Call& call, const Hooks& hooks) {
  const cli::Machine machine = cli::ThisMachine();
  CROSSDOCK_ASSIGN_OR_RETURN(const cli::Called called, cli::CommandOf(call.command));
  CROSSDOCK_ASSIGN_OR_RETURN(const cli::Request request, cli::RequestOf(called, call, machine));
  return cli::CommandFor(request.command->bit)(request, machine, hooks);
}

Result<std::unique_ptr<View>> OpenView(const Call& call, const Hooks& hooks) {
  const cli::Machine machine = cli::ThisMachine();
  const cli::Called called{call.command, cli::FindCommand("convert"), true};
  CROSSDOCK_ASSIGN_OR_RETURN(cli::Request request, cli::RequestOf(called, call, machine));
  request.values["to"] = {"hf"};
  CROSSDOCK_ASSIGN_OR_RETURN(const ConvertOptions options, cli::BuildConvertOptions(request, machine));
  return View::Open(options, hooks);
}

}  // namespace crossdock
