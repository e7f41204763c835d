// SPDX-License-Identifier: Apache-2.0
/// \file  The generic cut table: which axis of a model tensor tensor-parallel ranks divide, by the end of its key, for any family.
/// Source: megatron-core 0.19.2, `sharded_state_dict` of the layers.
/// Errors: kCorrupt for parts that do not fit together. Threads: functions are pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "expr/expr.h"

namespace crossdock::dialects::mcore {

struct Cut {
  int axis = 0;             ///< without the layer axis
  bool halves = false;      ///< [gate; up], each cut on its own, when the MLP is gated
  bool experts = false;     ///< axis 0 counts experts, which expert-parallel ranks divide; `axis` is cut by their own tensor ranks,
                            ///< which have an expert's tensor whole where it is 0
};
/// Nothing when no row of the table names the key.
[[nodiscard]] std::optional<Cut> FindCut(std::string_view model_key);

/// True for keys that every tensor-parallel rank is known to hold whole: norms, biases of row-parallel layers, routers.
[[nodiscard]] bool IsReplicated(std::string_view model_key);

/// The whole of a tensor from what each tensor-parallel rank holds of it, in the order of the ranks; without a cut, rank 0's.
/// kCorrupt when shapes do not fit. REQUIRES: at least one part; no layer axis.
[[nodiscard]] Result<expr::Expr> JoinRanks(const std::vector<expr::Expr>& parts, const std::optional<Cut>& cut, bool gated);

}  // namespace crossdock::dialects::mcore
