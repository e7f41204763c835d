// SPDX-License-Identifier: Apache-2.0
/// \file  The experts of one layer of a legacy checkpoint, put together from what each rank of a stage holds of them.
/// On disk (megatron-core 0.19.2, transformer/moe/experts.py; GroupedMLP of 0.12 to 0.16): local expert e of expert rank r is expert
/// r * (E / EP) + e of the model. One parameter an expert (TEGroupedLinear `weight<e>`, SequentialMLP `local_experts.<e>`), of the
/// shape of a linear layer; or GroupedMLP's two matrices of all experts of the rank, `weight1` [h, n * 2f] and `weight2` [n * f, h], whose
/// memory is [n, h, 2f] and [n, f, h], the transposes of the linear layers. The ranks within an expert divide f; in a gated MLP
/// gate and up each.
/// Errors: kCorrupt for parts that do not fit together. Threads: functions are pure.
#pragma once

#include <vector>

#include "dialects/mcore/cut_table.h"

namespace crossdock::dialects::mcore {

/// Of one matrix, e.g. fc1: [expert rank][tensor rank within the expert][local expert]; or, with `memory` set, one part a rank.
struct ExpertParts {
  std::vector<std::vector<std::vector<expr::Expr>>> parts;
  bool memory = false;      ///< GroupedMLP's form: `experts` of them lie in each part
  std::int64_t experts = 0; ///< of one rank, where `memory`
};

/// All experts along a new first axis. `cut`: that of the key, which counts the expert axis.
[[nodiscard]] Result<expr::Expr> JoinExperts(const ExpertParts& parts, const Cut& cut, bool gated);

/// Layers of experts along a new first axis: a join of joins without a reshape between, so that a slice finds its expert at once.
[[nodiscard]] Result<expr::Expr> StackLayers(const std::vector<expr::Expr>& layers);

}  // namespace crossdock::dialects::mcore
