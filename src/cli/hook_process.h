// SPDX-License-Identifier: Apache-2.0
/// \file  A hook as a process: a shell command, or a Python function that an interpreter of the machine imports and calls.
/// Its standard output goes to our standard error, for ours is data; its standard input is empty.
/// Errors: kUsage (a name that is no PKG.MOD.FN, or that cannot be imported), kIo (the process failed; its status is told). Threads: one.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::cli {

struct HookProcess {
  std::vector<std::string> words;                                  ///< program and arguments; looked up on PATH
  std::vector<std::pair<std::string, std::string>> environment;    ///< beside our own
};

/// Waits for the end. After `limit`, or when `stop` is asked for, the process and what it started are ended.
[[nodiscard]] Status RunHook(const HookProcess& hook, std::chrono::seconds limit, const std::stop_token& stop);

/// `name` = "pkg.mod.fn", called as fn(args, hf_path, step, dtype=..., is_lora=False) with an argparse.Namespace of the same values; afterwards
/// flush(timeout_sec) of the same module, where it has one, for the process ends. The environment names path, step and dtype: EXPORT_HF_PATH, EXPORT_STEP, EXPORT_DTYPE.
[[nodiscard]] HookProcess PythonHook(const std::string& interpreter, const std::string& name, std::chrono::seconds limit);
/// Only imports it: kUsage when that fails, with what Python said.
[[nodiscard]] Status CheckPythonHook(const std::string& interpreter, const std::string& name, const std::stop_token& stop);

}  // namespace crossdock::cli
