// SPDX-License-Identifier: Apache-2.0
/// \file  The plain (non-distributed) optimizer of a rank as its model_optim_rng.pt holds it: masters and moments by number.
/// Source: megatron-core 0.19.2, Float16OptimizerWithFloat16Params.state_dict, ChainedOptimizer.state_dict and optimizer/__init__.py
/// (_get_param_groups): the group that decays comes first; vectors and biases make the other; numbers count through the groups, and
/// within one through the model chunks in order of registration. Groups are matched by value on loading, their parameters by place. A
/// run with expert-parallel ranks has a second optimizer for the experts, Muon one of its own before Adam's: a list of such dicts.
/// Errors: kUnsupported for groups other than these, and for a parameter whose state is another optimizer's than Megatron gives it to.
/// Threads: functions are pure.
#pragma once

#include <string>
#include <vector>

#include "crossdock/result.h"
#include "dialects/mcore/legacy_groups.h"

namespace crossdock::dialects::mcore {

struct OptimizedParameter {
  Value master, mu, nu;    ///< tensors as they stand in the object
  Value momentum;          ///< of Muon, instead of mu and nu
};

/// The parameter groups of each optimizer of the chain.
struct LegacyChain {
  std::vector<ValueList> optimizers;
  Value scaler;                        ///< null: none
  bool muon = false;
  bool experts = false;                ///< some groups are the experts'
};
/// `common`: the common state's `optimizer`, for its groups and scaler. `experts`: the run has expert-parallel ranks and experts; groups
/// that the source lacks for them are those of the rest.
[[nodiscard]] Result<LegacyChain> ChainOf(const Value& common, bool experts);

/// The numbers and places that a parameter's state has: "state/<number>" and "fp32_from_fp16_params/<group>/<index>", in one of the chain.
struct OptimizerPlace {
  std::size_t optimizer = 0;
  std::size_t number = 0;
  std::size_t group = 0;
  std::size_t index = 0;
};
/// In the order of `parameters`, which is that of registration through the model chunks.
[[nodiscard]] Result<std::vector<OptimizerPlace>> OptimizerPlaces(const LegacyChain& chain, const std::vector<GroupedParameter>& parameters);

/// What stands before the place in the path of a tensor: nothing, or "<number of the optimizer>/".
[[nodiscard]] std::string PathInChain(const LegacyChain& chain, const OptimizerPlace& place);

/// `parameters` and their `places`, one by one.
[[nodiscard]] Value MakePlainOptimizer(const LegacyChain& chain, const std::vector<OptimizerPlace>& places, const std::vector<OptimizedParameter>& parameters);

/// The same for a distributed optimizer: groups alone; the states are in distrib_optim.pt.
[[nodiscard]] Value MakeDistributedOptimizer(const LegacyChain& chain);

}  // namespace crossdock::dialects::mcore
