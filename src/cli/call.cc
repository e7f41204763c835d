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

Result<const OptionSpec*> OptionOf(const CommandSpec& command, const std::string& name) {
  const OptionSpec* spec = FindOption(name);
  if (spec != nullptr && (spec->commands & command.bit) != 0 && !ListHas("progress quiet verbose json", spec->name)) return spec;
  const std::string_view nearest = spec == nullptr ? NearestOption(name, command.bit) : std::string_view();
  return MakeError(ErrorCode::kUsage, fmt::format("`{}` takes no {}", Underscored(command.name), Quoted(name)))
      .WithHint(nearest.empty() ? fmt::format("`crossdock {} --help` lists the options", command.name)
                                : fmt::format("did you mean `{}`?", Underscored(nearest)));
}

/// The words that the command line would have been given, and what its parser makes of them.
Result<Request> RequestOf(const Call& call, const Machine& machine) {
  const CommandSpec* command = FindCommand(call.command);
  if (command == nullptr) {
    const std::string_view nearest = NearestCommand(call.command);
    return MakeError(ErrorCode::kUsage, fmt::format("there is no command {}", Quoted(call.command)))
        .WithHint(nearest.empty() ? "" : fmt::format("did you mean `{}`?", nearest));
  }
  std::vector<std::string> args = {std::string(command->name)};
  for (const auto& [name, texts] : call.options) {
    CROSSDOCK_ASSIGN_OR_RETURN(const OptionSpec* spec, OptionOf(*command, name));
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
  request.command = command;
  request.positionals = words.positionals;
  request.by_program = true;
  for (const std::string& word : words.options) {
    const std::size_t equals = word.find('=');
    request.values[word.substr(2, equals - 2)].push_back(word.substr(equals + 1));
  }
  return request;
}

}  // namespace
}  // namespace crossdock::cli

namespace crossdock {

Result<Report> RunCall(const Call& call, const Hooks& hooks) {
  const cli::Machine machine = cli::ThisMachine();
  CROSSDOCK_ASSIGN_OR_RETURN(const cli::Request request, cli::RequestOf(call, machine));
  return cli::CommandFor(request.command->bit)(request, machine, hooks);
}

}  // namespace crossdock
