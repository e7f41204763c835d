// SPDX-License-Identifier: Apache-2.0
/// \file  Experts that a family keeps in one tensor, taken apart: each becomes two or three linear layers of its own, [out, in], which is
/// what scales are made for and what loaders of FP8 expect. Blocks then never reach over experts or over the border of gate and up.
/// `P.experts.gate_up_proj` gives `P.experts.{e}.gate_proj.weight` and `.up_proj.weight`, `P.experts.down_proj` gives
/// `P.experts.{e}.down_proj.weight`; their biases go along. How gate and up lie in it is what the family's rule for Megatron says.
/// Errors: kUnsupported for a fused tensor whose rule does not say so. Threads: pure.
#pragma once

#include "dialects/hf/hub_target.h"

namespace crossdock::dialects::hf {

/// Replaces the fused tensors of the draft. Nothing happens for families that have none.
[[nodiscard]] Status SplitExperts(const family::FamilyFile& family, Draft* draft);

/// `order` with the parts of fused experts in the place of these: expert by expert, each gate, up, down. `written`: the draft's names.
[[nodiscard]] std::vector<std::string> OrderOfExperts(const std::vector<std::string>& order, const Draft& draft);

}  // namespace crossdock::dialects::hf
