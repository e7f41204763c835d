// SPDX-License-Identifier: Apache-2.0
/// \file  Watch: exports each complete step of a training run from outside the trainer, in order, once. The run is only read.
/// What was exported is told by what lies at the target, so that a watch that is ended goes on where it was; an export
/// that was interrupted is taken up again.
/// Errors: kUsage (an export that would lie among the run's steps, a wrong template, options that no step could be converted with), kIncomplete
/// (no such run), kIo, kNoSpace, kCancelled. What is wrong with one step is told, and the others are exported: see Report::consistent.
/// Threads: independent calls may run at once; two into one target do not mix.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "crossdock/convert.h"
#include "crossdock/options.h"
#include "crossdock/result.h"

namespace crossdock {

/// A step that was exported and is in its place.
struct ExportedStep {
  std::int64_t step = 0;
  std::string hf_path;      ///< absolute
  std::string dtype;        ///< of the weights: "fp8", "bf16", "fp16", "fp32"; of others as config.json says it
};

struct WatchOptions {
  ConvertOptions convert;   ///< `source` is the run, `target` the template (`OUT`, `OUT/step_{step:07d}`), `to` is hf; step, force, resume and dry_run are not looked at
  bool once = false;        ///< ends when what is there has been exported; else goes on until it is stopped
  std::chrono::milliseconds interval{10'000};  ///< between two looks at the run
  /// Called after the export of a step, once for each: the name of the hook and the step are kept beside the exports. An error is
  /// told and nothing else comes of it.
  std::string hook_name;
  std::function<Status(const ExportedStep&)> hook;
};

/// `hooks.on_notice` is told of each export, and of each step that could not be exported. With `once` the report counts them;
/// `consistent` is false when a step could not be exported. Without, kCancelled is how it ends.
[[nodiscard]] Result<Report> Watch(const WatchOptions& options, const Hooks& hooks);

}  // namespace crossdock
