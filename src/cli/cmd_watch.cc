// SPDX-License-Identifier: Apache-2.0
/// `crossdock watch`.
#include "crossdock/watch.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/hook_process.h"
#include "cli/values.h"

namespace crossdock::cli {
namespace {

constexpr std::int64_t kLongest = std::int64_t{366} * 24 * 3600;

Result<std::chrono::seconds> Seconds(const Request& request, std::string_view name, std::int64_t otherwise) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> text, request.One(name));
  if (!text) return std::chrono::seconds(otherwise);
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t seconds, ParseInt(name, *text, 1, kLongest));
  return std::chrono::seconds(seconds);
}

/// The hook asked for, ready to be called; a Python function has been imported once.
Status TakeHook(const Request& request, const std::stop_token& stop, WatchOptions* options) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> function, request.One("hook"));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> command, request.One("hook-cmd"));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::chrono::seconds limit, Seconds(request, "hook-timeout", 1800));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::string> python, request.One("python"));
  const std::string interpreter = python.value_or("python3");
  if (function && command) return MakeError(ErrorCode::kUsage, "`--hook` and `--hook-cmd` contradict each other").WithHint("leave one of them out");
  if (python && !function) return MakeError(ErrorCode::kUsage, "`--python` is the interpreter of `--hook`, which is not given");
  if (!function && !command) {
    if (!request.values.contains("hook-timeout")) return OkStatus();
    return MakeError(ErrorCode::kUsage, "`--hook-timeout` is of a hook, and there is none").WithHint("name one with --hook or --hook-cmd");
  }
  HookProcess hook{{"/bin/sh", "-c", command.value_or("")}, {}};
  if (function) {
    CROSSDOCK_RETURN_IF_ERROR(CheckPythonHook(interpreter, *function, stop));
    hook = PythonHook(interpreter, *function, limit);
  }
  options->hook_name = function ? *function : *command;
  options->hook = [hook, limit, stop](const ExportedStep& step) {
    HookProcess called = hook;
    called.environment = {{"EXPORT_HF_PATH", step.hf_path}, {"EXPORT_STEP", std::to_string(step.step)}, {"EXPORT_DTYPE", step.dtype}};
    return RunHook(called, limit, stop);
  };
  return OkStatus();
}

}  // namespace

Result<Report> RunWatch(const Request& request, const Machine& machine, const Hooks& hooks) {
  WatchOptions options;
  CROSSDOCK_ASSIGN_OR_RETURN(options.convert, BuildConvertOptions(request, machine));
  if (options.convert.target.empty()) return MissingWord(request, "OUT");
  if (options.convert.to.empty()) options.convert.to = "hf";
  options.once = request.Flag("once");
  CROSSDOCK_ASSIGN_OR_RETURN(options.interval, Seconds(request, "interval", 10));
  CROSSDOCK_RETURN_IF_ERROR(TakeHook(request, hooks.stop, &options));
  return Watch(options, hooks);
}

}  // namespace crossdock::cli
