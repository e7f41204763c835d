// SPDX-License-Identifier: Apache-2.0
/// \file  The parameter groups of Megatron's Muon: a group of matrices, beside Adam's groups for the rest, each in an optimizer of
/// its own of the chain. Reference: megatron-core 0.19.2 with emerging-optimizers 0.3.0, `--optimizer muon`, not distributed.
/// Threads: functions are pure.
#pragma once

#include "dialects/hf/muon_group.h"
#include "tensor/value.h"

namespace crossdock::dialects::mcore {

/// Settings of Muon's group. Units: rates per step, as in Megatron's arguments.
struct MuonSettings {
  double max_lr = 0, lr = 0, min_lr = 0, weight_decay = 0;
  double momentum = 0;   ///< of the exponential average: new = momentum * old + (1 - momentum) * gradient
};

using hf::IsMuonGroup;

/// One group as Megatron makes it; the experts of a run with expert-parallel ranks have a group of their own.
[[nodiscard]] Value MakeMuonGroup(const MuonSettings& settings, bool experts);

/// `optimizer` of a common state: {0: Muon, 1: Adam}, or {0: Muon, 1: Muon of the experts, 2: Adam}. `adam` are Adam's groups.
[[nodiscard]] Value ChainMuon(const MuonSettings& settings, ValueList adam, bool experts);

}  // namespace crossdock::dialects::mcore
