// SPDX-License-Identifier: Apache-2.0
/// \file  The optimizer's parameter groups and the scheduler of a common state, from what a source carried and `--set`.
#pragma once

#include <string>
#include <vector>

#include "dialects/mcore/common_state.h"

namespace crossdock::dialects::mcore {

struct OptimizerState {
  Value optimizer;                     ///< {"optimizer": {"param_groups": [...]}, "param_state_sharding_type": ...}, or a chain of such
  Value scheduler;                     ///< opt_param_scheduler
  Value run_args = Value::MakeDict();  ///< optimizer, lr, min_lr, weight_decay, adam_*, muon_momentum for `args`
  std::vector<std::string> notices;
};
[[nodiscard]] Result<OptimizerState> MakeOptimizerState(const CommonRequest& request);

}  // namespace crossdock::dialects::mcore
