// SPDX-License-Identifier: Apache-2.0
/// \file  The optimizer's state of one legacy rank, parameter by parameter.
/// On disk (megatron-core 0.12 to 0.19.2, optimizer/optimizer.py): `optimizer` = {`optimizer`: {`state`: {int: {exp_avg,
/// exp_avg_sq[, step]}}, `param_groups`: [{..., `params`: [int]}]}, `fp32_from_fp16_params`: [[tensor]]}. The integers count
/// through the groups; a group has its parameters (legacy_groups.h) in the order of registration, which is the order of the model's own
/// dict. A chain of optimizers (experts of expert-parallel ranks, Muon) is a list of such. Nothing names them: every shape is checked.
/// Errors: kUnsupported and kCorrupt say why the state cannot be told apart. Threads: functions are pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "dialects/mcore/legacy_model.h"
#include "expr/expr.h"
#include "tensor/slot.h"

namespace crossdock::dialects::mcore {

/// By slot; null where there is none.
using SlotExprs = std::array<expr::Expr, kAllSlots.size()>;

struct LegacyState {
  std::map<std::int32_t, SlotExprs> params;   ///< by the parameter's entry; over entries of the source
  std::optional<Value> step;                  ///< torch's Adam counts with its state, others with their groups
};
[[nodiscard]] Result<LegacyState> ReadLegacyOptimizer(const Catalog& source, const LegacyRank& rank, const LegacyModel& shard);

/// True when the rank's file has optimizer state at all (parameter groups).
[[nodiscard]] bool HasLegacyOptimizer(const LegacyRank& rank);

/// The common state's `optimizer` for tensors in the model's space, from a rank's: groups without their numbers, scaler; of a chain
/// {0: ..., 1: ...}.
[[nodiscard]] Value CommonOptimizer(const LegacyRank& rank, const std::optional<Value>& step);

}  // namespace crossdock::dialects::mcore
