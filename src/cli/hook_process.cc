// SPDX-License-Identifier: Apache-2.0
#include "cli/hook_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

namespace crossdock::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 20ms;          // between two looks at a hook that runs
constexpr auto kLastWords = 5s;       // from SIGTERM to SIGKILL

/// Imports the function, and calls it where there is a path.
constexpr const char* kCaller = R"(
import argparse, importlib, inspect, os, sys, time
start = time.monotonic()
module, _, name = sys.argv[1].rpartition(".")
module = importlib.import_module(module)
hook = getattr(module, name)
if not callable(hook):
    raise TypeError(f"{sys.argv[1]} is no function")
path = os.environ.get("EXPORT_HF_PATH")
if path:
    step, dtype = int(os.environ["EXPORT_STEP"]), os.environ["EXPORT_DTYPE"]
    try:
        hook(argparse.Namespace(hf_path=path, rollout_id=step, dtype=dtype, is_lora=False), path, step, dtype=dtype, is_lora=False)
    finally:
        flush = getattr(module, "flush", None)
        if callable(flush):
            try:
                takes = any(one.name == "timeout_sec" or one.kind is one.VAR_KEYWORD for one in inspect.signature(flush).parameters.values())
            except (TypeError, ValueError):
                takes = False
            left = max(0.0, float(sys.argv[2]) - (time.monotonic() - start))
            flush(timeout_sec=left) if takes else flush()
)";

struct SpawnSettings {
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};
};

Result<pid_t> Spawn(const HookProcess& hook) {
  SpawnSettings settings;
  posix_spawn_file_actions_addopen(&settings.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&settings.files, STDERR_FILENO, STDOUT_FILENO);
  // Our threads block the signals that end us, and leave SIGPIPE alone: the hook shall not.
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE, SIGCHLD}) sigaddset(&usual, signal);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setsigdefault(&settings.attributes, &usual);
  posix_spawnattr_setpgroup(&settings.attributes, 0);  // what it starts is ended with it
  posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(hook.environment, [&](const auto& pair) { return pair.first == name; })) variables.emplace_back(text);
  }
  for (const auto& [name, value] : hook.environment) variables.push_back(name + "=" + value);
  const auto pointers = [](std::vector<std::string>& list) {
    std::vector<char*> out;
    for (std::string& one : list) out.push_back(one.data());
    out.push_back(nullptr);
    return out;
  };
  std::vector<std::string> words = hook.words;
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words.front().c_str(), &settings.files, &settings.attributes, pointers(words).data(), pointers(variables).data());
  if (error == 0) return pid;
  return MakeError(ErrorCode::kIo, fmt::format("the hook could not be started: {}", std::strerror(error))).WithPath(words.front());
}

/// Whether it has ended. Its group is its own until it is waited for.
bool HasEnded(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/// The wait status; -1 where somebody who ignores SIGCHLD has left us none.
int StatusOf(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) != pid) {
    if (errno != EINTR) return -1;
  }
  return status;
}

void End(pid_t pid) {
  kill(-pid, SIGTERM);
  const auto last = std::chrono::steady_clock::now() + kLastWords;
  while (!HasEnded(pid) && std::chrono::steady_clock::now() < last) std::this_thread::sleep_for(kLook);
  kill(-pid, SIGKILL);  // what it started too, also when it has ended itself
  StatusOf(pid);
}

}  // namespace

Status RunHook(const HookProcess& hook, std::chrono::seconds limit, const std::stop_token& stop) {
  CROSSDOCK_ASSIGN_OR_RETURN(const pid_t pid, Spawn(hook));
  const auto last = std::chrono::steady_clock::now() + limit;
  while (true) {
    if (HasEnded(pid)) {
      const int status = StatusOf(pid);
      if (status == -1) return MakeError(ErrorCode::kIo, "how it ended is not known");
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return OkStatus();
      return MakeError(ErrorCode::kIo, WIFEXITED(status) ? fmt::format("it ended with status {}", WEXITSTATUS(status))
                                                         : fmt::format("it was ended by signal {}", WTERMSIG(status)));
    }
    const bool stopped = stop.stop_requested();
    if (stopped || std::chrono::steady_clock::now() >= last) {
      End(pid);
      if (stopped) return MakeError(ErrorCode::kCancelled, "it was ended with the watch");
      return MakeError(ErrorCode::kIo, fmt::format("it took longer than {} s and was ended", limit.count())).WithHint("--hook-timeout gives it more");
    }
    std::this_thread::sleep_for(kLook);
  }
}

HookProcess PythonHook(const std::string& interpreter, const std::string& name, std::chrono::seconds limit) {
  return {{interpreter, "-c", kCaller, name, std::to_string(limit.count())}, {}};
}

Status CheckPythonHook(const std::string& interpreter, const std::string& name, const std::stop_token& stop) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == name.size()) {
    return MakeError(ErrorCode::kUsage, "`--hook` names a function in a Python module").WithExpected("PKG.MOD.FN").WithFound("`" + Printable(name) + "`");
  }
  HookProcess check = PythonHook(interpreter, name, 60s);
  check.environment.emplace_back("EXPORT_HF_PATH", "");
  const Status imported = RunHook(check, 60s, stop);
  if (imported || imported.error().code == ErrorCode::kCancelled) return imported;
  return MakeError(ErrorCode::kUsage, fmt::format("the hook `{}` cannot be imported: {}", Printable(name), imported.error().message))
      .WithPath(imported.error().path)
      .WithHint("what Python said stands above; --python names another interpreter, PYTHONPATH where the module lies");
}

}  // namespace crossdock::cli
