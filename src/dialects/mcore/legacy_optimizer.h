// SPDX-License-Identifier: Apache-2.0
/// \file  The plain (non-distributed) optimizer of a rank as its model_optim_rng.pt holds it: masters and Adam's moments by number.
/// Source: megatron-core 0.19.2, Float16OptimizerWithFloat16Params.state_dict and optimizer/__init__.py (_get_param_groups): the
/// group that decays comes first; vectors and biases make the other; numbers count through the groups, and within one through
/// the model chunks in order of registration. Groups are matched by value on loading, their parameters by place.
/// Errors: kUnsupported for groups other than these two. Threads: functions are pure.
#pragma once

#include <string>
#include <vector>

#include "crossdock/result.h"
#include "tensor/dims.h"
#include "tensor/value.h"

namespace crossdock::dialects::mcore {

struct OptimizedParameter {
  std::string name;        ///< of the module
  Shape shape;
  Value master, mu, nu;    ///< tensors as they stand in the object
};

/// True when weight decay applies: matrices that are no biases.
[[nodiscard]] bool Decays(const std::string& name, const Shape& shape);

/// The numbers and places that a parameter's state has: "state/<number>" and "fp32_from_fp16_params/<group>/<index>".
struct OptimizerPlace {
  std::size_t number = 0;
  std::size_t group = 0;
  std::size_t index = 0;
};
/// In the order of `parameters`, which is that of registration through the model chunks.
[[nodiscard]] std::vector<OptimizerPlace> OptimizerPlaces(const std::vector<std::pair<std::string, Shape>>& parameters);

/// `common`: the common state's `optimizer`, for its groups and scaler.
[[nodiscard]] Result<Value> MakePlainOptimizer(const Value& common, const std::vector<OptimizedParameter>& parameters);

/// The same for a distributed optimizer: groups alone; the states are in distrib_optim.pt.
[[nodiscard]] Result<Value> MakeDistributedOptimizer(const Value& common);

}  // namespace crossdock::dialects::mcore
