// SPDX-License-Identifier: Apache-2.0
/// \file  The parallel layout in Megatron's arguments, three ways: written into a checkpoint's `args`, read from them, and
/// as flags of the command line of a run that has this layout.
/// Reference: megatron-core 0.19.2, megatron/training/arguments.py (validate_args): virtual_pipeline_model_parallel_size
/// is what a run uses; num_virtual_stages_per_pipeline_rank and num_layers_per_virtual_pipeline_stage are how it was told.
/// LoongForge names the layers of every stage in custom_pipeline_layers.
/// Errors of LayoutOfArgs: kCorrupt for sizes that are none, kUnsupported for divisions that have no words here.
#pragma once

#include <string>

#include "crossdock/result.h"
#include "layout/stage_map.h"
#include "tensor/value.h"

namespace crossdock::dialects::mcore {

/// The arguments that say how a checkpoint is divided; set on `args` in place. `stages` is the layout's own map.
void SetParallelArgs(const layout::ParallelLayout& layout, const layout::StageMap& stages, Value* args);

/// The layout of the run that wrote these arguments (a dict, as ReadStoredArgs gives it); what is absent has its default.
[[nodiscard]] Result<layout::ParallelLayout> LayoutOfArgs(const Value& args);

/// " --tensor-model-parallel-size 2 ...", each with a leading space; empty for one rank. Megatron does not take them from
/// the checkpoint under --use-checkpoint-args.
[[nodiscard]] std::string LayoutFlags(const Value& args);

}  // namespace crossdock::dialects::mcore
