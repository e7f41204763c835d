// SPDX-License-Identifier: Apache-2.0
/// \file  Experts that a family keeps in one tensor, taken apart and joined again: each becomes two or three linear layers of its own, [out, in], which is
/// what scales are made for and what loaders of FP8 expect. Blocks then never reach over experts or over the border of gate and up.
/// `P.experts.gate_up_proj` gives `P.experts.{e}.gate_proj.weight` and `.up_proj.weight`, `P.experts.down_proj` gives
/// `P.experts.{e}.down_proj.weight`; their biases go along. How gate and up lie in it is what the family's rule for Megatron says.
/// Errors: kUnsupported for a fused tensor whose rule does not say so. Threads: pure.
#pragma once

#include <optional>
#include <string>

#include "dialects/hf/hub_target.h"
#include "dialects/hf/quantized.h"

namespace crossdock::dialects::hf {

/// Replaces the fused tensors of the draft. Nothing happens for families that have none.
[[nodiscard]] Status SplitExperts(const family::FamilyFile& family, Draft* draft);

/// The way back: the fused tensor `name` (with the source's prefix) of `shape`, made of the layers of its experts; nothing when the source
/// has not all of them. `form` is empty where no layer is FP8. Where some are, the others are cast to what these are read as.
[[nodiscard]] Result<std::optional<Dequantized>> JoinExperts(const family::FamilyFile& family, const Catalog& source, const std::string& name, const Shape& shape,
                                                             const Quantization& how);

/// `order` with the parts of fused experts in the place of these: expert by expert, each gate, up, down. `written`: the draft's names.
[[nodiscard]] std::vector<std::string> OrderOfExperts(const std::vector<std::string>& order, const Draft& draft);

}  // namespace crossdock::dialects::hf
