// SPDX-License-Identifier: Apache-2.0
/// \file  Which optimizer a Megatron tensor's state belongs to: as the source has it, and as Megatron's own rule would have it.
/// The source's keys are the truth; the rule is there to tell where a run that loads the result will ask for something else.
/// Reference: megatron-core 0.19.2, optimizer/emerging_optimizers.py (_is_nonlinear_or_embedding).
/// Errors: kUnsupported where one tensor's parts belong to both. Threads: functions are pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

enum class Owner : std::uint8_t { kNone, kAdam, kMuon };

/// Asked for a hub name and a slot: is it there?
using HasState = std::function<bool(const std::string& name, Slot slot)>;

/// Whose state the hub tensors of `tensor` have. A tensor that Megatron stores as one has one owner.
[[nodiscard]] Result<Owner> OwnerOf(const family::Binding& binding, const family::DialectTensor& tensor, const HasState& has);

/// Megatron's rule: a module's matrices are Muon's; embedding, head and whatever has another number of axes are Adam's.
[[nodiscard]] bool GoesToMuon(const family::DialectTensor& tensor);

}  // namespace crossdock::dialects::mcore
