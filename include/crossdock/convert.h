// SPDX-License-Identifier: Apache-2.0
/// \file  The commands as functions. Each returns a report in two forms: text for people (what the command line
/// prints on stdout) and one JSON object (what --json prints).
/// Errors: see crossdock/error.h; messages name file, tensor, expected, found and the next step.
/// Threads: independent calls may run at once; two into one target do not mix, the second is refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossdock/options.h"
#include "crossdock/result.h"

namespace crossdock {

struct Report {
  std::string text;
  std::string json;
  bool equal = true;      ///< verify, roundtrip, convert --verify: no difference was found
  bool consistent = true; ///< inspect: everything that was looked at agrees
  std::vector<std::string> remarks;  ///< lines for stderr: the largest differences as "[DIFF] ..."
};

/// Converts, or prints the plan with `dry_run`. The report's text ends with the line that loads the result.
[[nodiscard]] Result<Report> Convert(const ConvertOptions& options, const Hooks& hooks);
[[nodiscard]] Result<Report> Verify(const VerifyOptions& options, const Hooks& hooks);
[[nodiscard]] Result<Report> Inspect(const InspectOptions& options, const Hooks& hooks);
[[nodiscard]] Result<Report> Roundtrip(const RoundtripOptions& options, const Hooks& hooks);
/// The mapping and the optimizer partition: a row a target tensor with the rule that put it there.
[[nodiscard]] Result<Report> Manifest(const ConvertOptions& asked, const Hooks& hooks);
/// All families, or one family's rules in full; `rules` adds a file of the user's own.
[[nodiscard]] Result<Report> Families(const std::string& name, const std::optional<std::string>& rules);
/// Writes a small Qwen3 (4 layers, seeded random weights) as DIR/hf and, with Adam state, DIR/full-state.
[[nodiscard]] Result<Report> Demo(const std::string& dir, const Hooks& hooks);

/// "crossdock 0.1.0".
[[nodiscard]] std::string VersionString();

}  // namespace crossdock
