// SPDX-License-Identifier: Apache-2.0
/// \file  From a Request to the option structs of the public API: which path is source, target or template, and every
/// value with its type. Shared by convert, plan, manifest and roundtrip.
/// Errors: kUsage; kUnsupported for what convert.py knows and this version does not.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/parser.h"
#include "crossdock/options.h"
#include "crossdock/result.h"

namespace crossdock::cli {

/// What the command line needs to know of the machine; replaced in tests.
struct Machine {
  Environment environment;
  std::function<bool(const std::string&)> exists;
  std::vector<std::string> variables;   ///< names of the environment
};

struct Ends {
  std::string source;
  std::string target;
  std::string to;                            ///< --to, or what --saver says
  std::optional<std::string> hf_template;
};

/// Who is SOURCE, TARGET and template (docs/reference/cli.md). Does not ask whether they are missing.
[[nodiscard]] Result<Ends> ResolveEnds(const Request& request, const Machine& machine);

/// The word as a local path. `ORG/NAME` that is no path is looked up in the local Hugging Face cache; kIncomplete when
/// it is not there either. kUnsupported for URLs.
[[nodiscard]] Result<std::string> ResolvePath(const std::string& word, const Machine& machine);
[[nodiscard]] Status CheckLocal(const std::string& path);

[[nodiscard]] Result<ConvertOptions> BuildConvertOptions(const Request& request, const Machine& machine);

/// The values of --allow; kUsage for one that means nothing to the command.
[[nodiscard]] Result<std::vector<std::string>> AllowedThings(const Request& request);

/// --step: a number, or `release`.
[[nodiscard]] Result<std::optional<StepChoice>> WantedStep(const Request& request);

/// "`crossdock convert` needs SOURCE" and the like.
[[nodiscard]] Error MissingWord(const Request& request, const std::string& what);

}  // namespace crossdock::cli
