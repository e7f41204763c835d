// SPDX-License-Identifier: Apache-2.0
/// \file  A Tunix step written as MaxText's, array by array: only the levels change, so that no configuration and no family is needed, and
/// whatever the model has is there again: adapters of LoRA, modules that no family knows, moments in the dtype that they have.
/// Beside the arrays of the step: `opt_state` {} where there is no state, a schedule's counter where pre-training needs one, routed biases
/// where 0.2.5 looks for them, and in the custom metadata what the step had, `scan_layers` and the record of the levels.
/// Errors: kIncomplete for a parameter with one of Adam's moments; kUnsupported for optimizer state that cannot be carried and for consumers of the Linen form; those of consumer.h and inventory.h.
#pragma once

#include "dialects/dialect.h"
#include "dialects/tunix/view.h"

namespace crossdock::dialects::tunix {

/// Of TargetOptions: consumer, iteration, zstd_level. Layers stay as they are, scanned or not. Expressions are over the source.
[[nodiscard]] Result<TargetState> CarryToMaxText(const View& view, const TargetOptions& options, bool no_optim);

}  // namespace crossdock::dialects::tunix
