// SPDX-License-Identifier: Apache-2.0
/// \file  The random states that ranks of a run save: what of them may go into another checkpoint.
/// On disk: a list of one dict (of one for each data-parallel rank with data_parallel_random_init) with the states of Python's, NumPy's and
/// torch's generators and those of the tensor-parallel tracker (megatron-core 0.19.2, training/checkpointing.py, get_rng_state).
/// Threads: functions are pure.
#pragma once

#include <string>

#include "dialects/dialect.h"
#include "dialects/mcore/global_view.h"
#include "layout/parallel_layout.h"

namespace crossdock::dialects::mcore {

/// "rng_state/shard_<p>.<t>_<pp>.<tp>": the object of one pair of pipeline and tensor-parallel rank.
[[nodiscard]] std::string RandomStateKey(int stage, int stages, int tensor_rank, int tensor_ranks);

/// The division among ranks in words: two runs of the same words ask for each other's random states.
[[nodiscard]] std::string RandomLayout(const layout::ParallelLayout& layout, const layout::StageMap& stages);

/// Those of a checkpoint, of all pairs of ranks or none: `refusal` says why none. `load` reads what the catalog lists.
[[nodiscard]] RandomStates ReadRandomStates(const Catalog& seen, const ObjectLoader& load);

/// Puts the source's random states into a target of the same layout, else names them as left out.
void PlaceRandomStates(const TargetOptions& options, TargetState* target);

/// Whoever loads the target runs what its pickles name. Random states need plain data, tensors and NumPy's arrays: kUnsupported, with the
/// name, for objects of any other class.
[[nodiscard]] Status CheckRandomState(const Value& state);

}  // namespace crossdock::dialects::mcore
