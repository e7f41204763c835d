// SPDX-License-Identifier: Apache-2.0
/// \file  How an optimizer's parameter group tells whose it is, in the words of torch's, Megatron's and emerging-optimizers' groups alike.
/// Threads: pure functions.
#pragma once

#include "tensor/value.h"

namespace crossdock::dialects::hf {

/// Muon's groups have a momentum and, unlike Adam's, no betas and no step. SGD's have a dampening besides.
[[nodiscard]] inline bool IsMuonGroup(const Value& group) { return group.GetFloat("momentum").has_value() && group.Find("betas") == nullptr && group.Find("dampening") == nullptr; }

}  // namespace crossdock::dialects::hf
