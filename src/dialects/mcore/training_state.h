// SPDX-License-Identifier: Apache-2.0
/// \file  What a common state says beside the architecture: counters, optimizer settings, scheduler, parallel layout.
/// Reference: Megatron-LM training/checkpointing.py; megatron-core 0.19.2 (param_groups, opt_param_scheduler).
/// Errors: kCorrupt when the groups' Adam steps differ. Threads: functions are pure.
#pragma once

#include <optional>
#include <string>

#include "dialects/dialect.h"
#include "tensor/catalog.h"

namespace crossdock::dialects::mcore {

/// Counters of a checkpoint; `args` as ReadStoredArgs gives them, or null.
[[nodiscard]] Result<Counters> ReadCounters(const Catalog& catalog, const Value* args, bool with_optimizer);

/// What to tell when the directory's number and the common state's iteration differ: the latter counts, as in Megatron.
[[nodiscard]] std::optional<std::string> IterationNotice(const Catalog& catalog);

/// HubState::extras in the words "mcore": param_groups, opt_param_scheduler, num_floating_point_operations_so_far, and
/// the arguments of `args` that belong to the training run and not to the architecture.
[[nodiscard]] Value ReadExtras(const Catalog& catalog, const Value* args);

/// HubState::layout: tp, pp, uneven stages, world size, kind of the optimizer's sharding; empty when not stored.
[[nodiscard]] Value ReadLayout(const Catalog& catalog, const Value* args);

/// All param groups of the common state's optimizer, chained ones in order.
[[nodiscard]] ValueList ParamGroups(const Value& common);

}  // namespace crossdock::dialects::mcore
