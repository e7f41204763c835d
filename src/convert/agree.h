// SPDX-License-Identifier: Apache-2.0
/// \file  Agree: a collective step in which every rank says whether it is well. None goes on unless all are: a rank that failed alone
/// would leave the others waiting in their next step.
/// Invariant: while the connection works all ranks get the same answer: the error of the lowest rank that failed, which it names; else kUsage
/// when they are not at the same step. Where the connection fails a step can end well on one rank and with an error on another: what each
/// does next meets another step here, and ends too.
/// Threads: as crossdock/comm.h.
#pragma once

#include <string>
#include <vector>

#include "crossdock/comm.h"
#include "crossdock/result.h"

namespace crossdock::convert {

/// What all ranks bring, by rank, when `mine` and everybody else's are values. `step` says what was being done, in one line.
[[nodiscard]] Result<std::vector<std::string>> Agree(Comm& comm, const std::string& step, const Result<std::string>& mine);
[[nodiscard]] Status AgreeOn(Comm& comm, const std::string& step, const Status& mine);

/// The same, and kUsage where ranks bring different texts; `what` they are.
[[nodiscard]] Status AgreeOnSame(Comm& comm, const std::string& step, const std::string& what, const Result<std::string>& mine);

}  // namespace crossdock::convert
