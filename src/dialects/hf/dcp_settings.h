// SPDX-License-Identifier: Apache-2.0
/// \file  An optimizer's settings and counters in plain PyTorch DCP: read into HubState's words, and made for writing.
/// Reference: torch 2.15, torch/optim/adamw.py (what a group holds), torch/distributed/checkpoint/state_dict.py (`params` are
/// names). HubState::extras: `param_groups` is a list of dicts in torch's words, `params` in hub names; extras_words "torch".
/// Errors: kUnsupported (steps that differ), kCorrupt (a step that is no whole number), kUsage (settings that nobody says). Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/hf/dcp_keys.h"

namespace crossdock::dialects::hf {

/// The step that all parameters share; nothing when there is none.
[[nodiscard]] Result<std::optional<std::int64_t>> ReadAdamStep(const Catalog& source);

/// The groups that `source` says, in order, or an empty list.
[[nodiscard]] ValueList ReadParamGroups(const Catalog& source, const NameIndex& names);

/// Whether a group is SGD's, whose momentum_buffer is a plain sum and no state that is carried.
[[nodiscard]] bool HasSgd(const Catalog& source);

/// Counters that training scripts keep beside the model.
[[nodiscard]] bool IsRootCounter(std::string_view key);
/// `step`, `consumed_train_samples` and the like at the root of the state dict.
[[nodiscard]] Counters ReadRootCounters(const Catalog& source);

/// The groups to write, over the names that hold state, sorted: those of the source when they are torch's own and cover
/// the parameters, else one group of each optimizer, Muon's first, with the source's settings and those of `--set`.
struct ParamsWithState {
  std::vector<std::string> adam, muon;
};
struct ParamGroupsToWrite {
  ValueList groups;
  std::vector<std::string> notices;
};
[[nodiscard]] Result<ParamGroupsToWrite> MakeParamGroups(const HubState& hub, const TargetOptions& options,
                                                         const ParamsWithState& params);

}  // namespace crossdock::dialects::hf
