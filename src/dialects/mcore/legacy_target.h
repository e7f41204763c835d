// SPDX-License-Identifier: Apache-2.0
/// \file  A Megatron checkpoint in the legacy form: what WriteHub or Reshard arranged by global keys, as each rank's own files.
/// Source: megatron-core 0.19.2 and its training/checkpointing.py with `--ckpt-format torch`; formats/mp_rank/FORMAT.md for names.
/// A rank's model holds the layers of its chunk, counted from 0 (`model0`, `model1`, ... with virtual stages), its part of each
/// tensor, its own experts, counted from 0 too, and on the last stage of a tied model a copy of the embedding as `output_layer.weight`.
/// There is one directory for each pair (tensor rank, expert rank) of a run's ranks, as each of them looks for its own when it loads.
/// Errors: kUnsupported for a division whose pairs do not tell the parts of experts apart, for tensors that no module is known to have,
/// and for optimizer state that the form cannot hold.
/// Threads: functions are pure.
#pragma once

#include <optional>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

/// One rank of a run, as Megatron's parallel_state numbers it.
struct LegacyRankPlace {
  int tensor = 0;
  int stage = 0;
  int expert = 0;
  int within = 0;               ///< tensor rank within an expert
  bool operator==(const LegacyRankPlace&) const = default;
};

/// `global`: chunks with shard = stage * ranks_per_stage() + rank, where rank counts tensor ranks, or for experts expert rank *
/// expert_tp() + tensor rank within the expert; objects["common"]. Optimizer state goes into model_optim_rng.pt, or into
/// distrib_optim.pt where `distributed`. With `only` what this one rank holds, under the names of its file: every division is
/// possible then, as there are no other directories.
[[nodiscard]] Result<TargetState> ToLegacy(TargetState global, const layout::ParallelLayout& layout, bool distributed,
                                           const std::optional<LegacyRankPlace>& only = std::nullopt);

/// Whether a run with these arguments keeps its Adam state in distrib_optim.pt: --set use_distributed_optimizer, else the
/// arguments that the source stores, else no. One of Muon (`global` has its momentum) never does: kUnsupported where that is asked for.
[[nodiscard]] Result<bool> UsesDistributedOptimizer(const TargetOptions& options, const Catalog& source, const TargetState& global);

}  // namespace crossdock::dialects::mcore
