// SPDX-License-Identifier: Apache-2.0
/// The program: words to a request, a request to a command, its report or error to stdout and stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/commands.h"
#include "cli/json_text.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/words.h"

namespace crossdock::cli {
namespace {

int Fail(const Error& error, bool json) {
  if (json) {
    std::fputs(ErrorJson(error).c_str(), stdout);
    std::fflush(stdout);
  }
  fmt::print(stderr, "error: {}\n", error.ToString());
  return ExitStatus(error.code);
}

/// stdout is data: a reader that has gone away, or a full disk under a redirection, is a failure. Only the disk is told
/// of: under `| head` the reader has what it wanted.
int Print(const std::string& text, int status) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return status;
  if (errno == EPIPE) return ExitStatus(ErrorCode::kIo);
  return Fail(MakeError(ErrorCode::kIo, "the result could not be written to the standard output"), false);
}

/// What a command was asked to show: a plan, a mapping, a list. The others tell what they did.
bool AsksForText(const Request& request) {
  return (request.command->bit & (kInspect | kManifest | kPlan | kFamilies | kResumePlan)) != 0 || request.Flag("dry-run") || request.Flag("manifest-only");
}

/// With --quiet a command that does something says nothing when it is done; the exit status tells the rest.
int Finish(const Result<Report>& result, const Request& request) {
  const bool json = request.Flag("json");
  if (!result) return Fail(result.error(), json);
  const int status = !result->equal ? 1 : !result->consistent ? ExitStatus(ErrorCode::kCorrupt) : 0;
  const bool quiet = request.Flag("quiet");
  if (quiet && !json && !AsksForText(request)) return status;
  for (const std::string& line : quiet ? std::vector<std::string>() : result->remarks) fmt::print(stderr, "{}\n", line);
  std::string text = json ? result->json : result->text;
  if (!text.ends_with('\n')) text += '\n';
  return Print(text, status);
}

/// Errors are to be JSON too, also those of words that are never parsed.
bool AsksForJson(const std::vector<std::string>& args, const Machine& machine) {
  const bool said = std::any_of(args.begin(), args.end(), [](const std::string& word) { return word.starts_with("--json"); });
  const char* variable = machine.environment(EnvironmentName("json").c_str());
  return said ? WantsJson(args) : variable != nullptr && ParseBool(variable) == "true";
}

Result<Report> RunRequest(const Request& request, const Machine& machine) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> progress, request.One("progress"));
  const bool quiet = request.Flag("quiet");
  CROSSDOCK_ASSIGN_OR_RETURN(ProgressMode mode,
                             ProgressPrinter::ModeFromName(progress.value_or("auto"), isatty(STDERR_FILENO) == 1));
  if (quiet) mode = ProgressMode::kOff;
  const bool verbose = request.Flag("verbose");
  ProgressPrinter printer(stderr, mode, verbose);
  const SignalWatch watch([&printer] { printer.PrintNow(); });
  Hooks hooks;
  hooks.stop = watch.token();
  hooks.on_progress = [&printer](const ProgressEvent& event) { printer.Event(event); };
  // A watch goes on for days: what it did is told as it comes.
  if ((verbose || request.command->bit == kWatch) && !quiet) hooks.on_notice = [&printer](const std::string& text) { printer.Notice(text); };
  return CommandFor(request.command->bit)(request, machine, hooks);
}

}  // namespace

Command CommandFor(unsigned bit) {
  switch (bit) {
    case kInspect: return RunInspect;
    case kVerify: return RunVerify;
    case kRoundtrip: return RunRoundtrip;
    case kManifest: return RunManifest;
    case kFamilies: return RunFamilies;
    case kDemo: return RunDemo;
    case kResumePlan: return RunResumePlan;
    case kQuantize: return RunQuantize;
    case kWatch: return RunWatch;
    default: return RunConvert;
  }
}

Machine ThisMachine() {
  Machine machine;
  machine.environment = [](const char* name) -> const char* { return std::getenv(name); };
  machine.exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    machine.variables.emplace_back(text.substr(0, text.find('=')));
  }
  return machine;
}

int RunProgram(const std::vector<std::string>& args, const Machine& machine) {
  const bool json = AsksForJson(args, machine);
  const Result<Words> words = SettleWords(args, machine.exists);
  if (!words) return Fail(words.error(), json);
  if (words->version) return Print(VersionString() + "\n", 0);
  if (words->help) return Print(HelpText(words->command), 0);
  if (words->command == nullptr) {
    fmt::print(stderr, "{}", HelpText(nullptr));
    return ExitStatus(ErrorCode::kUsage);
  }
  const Result<Request> request = ParseWords(*words, machine.environment);
  if (!request) return Fail(request.error(), json);
  if (!request->Flag("quiet")) {
    for (const std::string& notice : words->notices) fmt::print(stderr, "note: {}\n", notice);
    for (const std::string& notice : UnknownVariables(machine.variables)) fmt::print(stderr, "note: {}\n", notice);
  }
  return Finish(RunRequest(*request, machine), *request);
}

}  // namespace crossdock::cli
