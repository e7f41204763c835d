// SPDX-License-Identifier: Apache-2.0
/// \file  What the ranks of a legacy checkpoint hold together, parameter by parameter, as torch_dist has it: layers of the decoder lie
/// along a first axis where all of them are alike, and so do the blocks of a vision tower that torch_dist stacks; all else is by name.
/// Errors: kCorrupt for numbers that are not those of the model. Threads: a plain value and a pure function.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "dialects/mcore/global_view.h"
#include "dialects/mcore/keys.h"
#include "tensor/slot.h"

namespace crossdock::dialects::mcore {

/// Of one parameter: its tensors by slot, whole.
struct WholeParameter {
  std::array<expr::Expr, kAllSlots.size()> slots;   ///< null: there is no such state
  std::string dir;                                  ///< where it was found, for messages
};
/// By torch_dist key, layers of the decoder and blocks of a tower numbered.
using WholeParameters = std::map<std::string, WholeParameter>;

struct StackOptions {
  std::int64_t layers = 0;             ///< of the decoder
  bool numbered = false;               ///< torch_dist of the same run numbers its layers however alike they are
  OptimizerForm form = OptimizerForm::kDistributed;
};
/// Adds an entry and an expression for each tensor to `view`, sorted.
[[nodiscard]] Status StackLayersOf(const WholeParameters& whole, const StackOptions& options, GlobalView* view);

}  // namespace crossdock::dialects::mcore
