// SPDX-License-Identifier: Apache-2.0
/// \file  A command called by its name with options as names and texts: what a binding to another language needs. Options are the
/// command line's, in any of its spellings, read by the same table and the same parsers; what belongs to a terminal (progress,
/// quiet, verbose, json) is refused, and CROSSDOCK_... variables of the environment set nothing.
/// Errors: kUsage names the option as the caller wrote it and the nearest one; else as the command. Threads: independent calls may run at once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "crossdock/convert.h"
#include "crossdock/options.h"
#include "crossdock/result.h"
#include "crossdock/view.h"

namespace crossdock {

struct Call {
  std::string command;              ///< "convert", "resume-plan" or "resume_plan", ...
  std::vector<std::string> paths;   ///< the words without a name, in their order
  /// Several texts are several values of an option that may be repeated, else the parts of one ("128", "128").
  std::vector<std::pair<std::string, std::vector<std::string>>> options;
};

/// Both forms of the report are made.
[[nodiscard]] Result<Report> RunCall(const Call& call, const Hooks& hooks);

/// A view with the options of a conversion that mean something to it; `command` is what messages call it, and `paths` the one path.
[[nodiscard]] Result<std::unique_ptr<View>> OpenView(const Call& call, const Hooks& hooks);

}  // namespace crossdock
