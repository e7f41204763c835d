// SPDX-License-Identifier: Apache-2.0
/// \file  Which MaxText a checkpoint is for (--for maxtext[@VERSION], maxtext-linen), and what moved between its releases:
///   form of Muon's state   Linen: lists and a level `params`; NNX: dicts by number, no such level. NNX refuses Linen's (0.2.5).
///   routed biases          0.2.5: a variable of its own, stacked first ([L, E]), that training keeps in `nnx_aux`, without moments. Before: a
///                          parameter like others ([E, L]) whose moments are zero, for it has no gradient.
///   Muon or Adam           the words in a parameter's path that keep it from Muon.
///   Orbax                  0.2.5 saves by v1's handler, older releases by v0's; only the handler's name differs.
/// Errors: kUsage for a version of maxtext-linen; kUnsupported for releases that no rule here was made for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "crossdock/result.h"

namespace crossdock::dialects::maxtext {

enum class Release : std::uint8_t { kLinen, k024, k025 };

struct Consumer {
  Release release = Release::k025;
  [[nodiscard]] bool linen() const { return release == Release::kLinen; }
  /// Routed biases are no parameters: stacked along axis 0, no moments.
  [[nodiscard]] bool own_biases() const { return release == Release::k025; }
  [[nodiscard]] std::string_view handler() const;
  [[nodiscard]] std::string name() const;
};

/// "" and "maxtext" are the newest release that the tests run.
[[nodiscard]] Result<Consumer> ChooseConsumer(const std::string& name, const std::string& version);

/// What the release's own rule gives to Muon (the rest goes to Adam); `name` below `params.params`, the shape as stored.
[[nodiscard]] bool GoesToMuon(const Consumer& consumer, std::string_view name, std::size_t axes);

}  // namespace crossdock::dialects::maxtext
