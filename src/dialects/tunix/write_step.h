// SPDX-License-Identifier: Apache-2.0
/// \file  MaxText's tree as the step that a Tunix trainer saves: levels put on again, boxes around leaves, two items.
///   params.params.P, nnx_aux.model.P   model_params.[ADAPTER.]P.value
///   opt_state..., step (int32)         optimizer_state..., step.value (uint32); neither where the tree has no optimizer state
/// What MaxText's tree has no place for is written from the record (levels.h): hyperparameters, the trainer's own counters, random streams. Gradients
/// that MultiSteps gathers are zeros, as after an update.
/// Reference: Tunix 0.1.7, sft/checkpoint_manager.py (nnx.state of the model and of the optimizer); tests/golden/tunix.
/// Errors: kCorrupt for a record that makes no tree with these leaves; kUnsupported for tensors that a step has no place for, and where a step is not what its trainer expects. Threads: functions are pure.
#pragma once

#include <string_view>

#include "crossdock/result.h"
#include "dialects/dialect.h"
#include "dialects/tunix/levels.h"

namespace crossdock::dialects::tunix {

struct StepRequest {
  Levels levels;
  Value custom_metadata = Value::MakeDict();   ///< of the step
  bool ocdbt = true, zarr3 = true;
  /// The record is another run's: its counters of updates are set to this one's.
  bool counters_follow = false;
};

/// `made` is what maxtext's WriteHub gives; names, tree, values and the words for the writer (formats/orbax/orbax.h, of several items)
/// are a Tunix step's then.
[[nodiscard]] Result<TargetState> ToStep(TargetState made, const StepRequest& request);

/// A trainer's restore takes a step only if it has the leaves that the trainer has. `reference` is a step of that trainer; told is the first leaf
/// that one of both lacks, or whose shape differs. Where `step` has no optimizer state its parameters alone are looked at.
[[nodiscard]] Status CheckFits(const Catalog& step, const Catalog& reference);

/// The slot of a step's tensor by its name; kParam for what is no moment.
[[nodiscard]] Slot SlotOf(std::string_view name);

}  // namespace crossdock::dialects::tunix
