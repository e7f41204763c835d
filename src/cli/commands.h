// SPDX-License-Identifier: Apache-2.0
/// \file  The commands: each turns a Request into a call of the public API. One file a command.
#pragma once

#include <string>

#include "cli/convert_options.h"
#include "cli/parser.h"
#include "crossdock/convert.h"
#include "crossdock/result.h"

namespace crossdock::cli {

[[nodiscard]] Result<Report> RunConvert(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunManifest(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunRoundtrip(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunQuantize(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunInspect(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunVerify(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunFamilies(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunResumePlan(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunDemo(const Request& request, const Machine& machine, const Hooks& hooks);
[[nodiscard]] Result<Report> RunWatch(const Request& request, const Machine& machine, const Hooks& hooks);

using Command = Result<Report> (*)(const Request&, const Machine&, const Hooks&);
[[nodiscard]] Command CommandFor(unsigned bit);

/// The environment and the files of this process.
[[nodiscard]] Machine ThisMachine();

/// The whole program behind main(): words in, exit status out.
int RunProgram(const std::vector<std::string>& args, const Machine& machine);

}  // namespace crossdock::cli
