// SPDX-License-Identifier: Apache-2.0
/// \file  The format names of the command line as pairs of a format and a dialect, listed once.
/// Errors: kUsage for a name that is none; kUnsupported for one that this version cannot read or write.
/// Threads: immutable.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "formats/registry.h"

namespace crossdock::convert {

struct KindSpec {
  formats::Kind kind;
  std::string_view format;    ///< folder under formats/
  std::string_view dialect;   ///< folder under dialects/; "hub" for the hub itself
  std::string_view what;      ///< for `families` and messages
  bool reads;
  bool writes;
};

[[nodiscard]] std::span<const KindSpec> KindTable();
[[nodiscard]] const KindSpec& SpecOf(formats::Kind kind);
[[nodiscard]] Result<formats::Kind> ParseTargetKind(const std::string& name);
[[nodiscard]] Result<std::optional<formats::Kind>> ParseSourceKind(const std::optional<std::string>& name);

/// True for the kinds that are divided by a parallel layout and lie in a run with a tracker.
[[nodiscard]] bool WritesMegatron(formats::Kind kind);

/// True for every format that Megatron's own trainers write: the dialect is mcore.
[[nodiscard]] bool IsMegatron(formats::Kind kind);

/// True when the format can hold optimizer state.
[[nodiscard]] bool HoldsOptimizer(formats::Kind kind);

/// True when it has a place for master weights beside the parameters: PyTorch's own optimizers keep none.
[[nodiscard]] bool HoldsMasters(formats::Kind kind);

}  // namespace crossdock::convert
