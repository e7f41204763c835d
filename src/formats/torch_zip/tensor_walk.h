// SPDX-License-Identifier: Apache-2.0
/// \file  Walks over the tensors of a Value, depth first. Values of readers are at most Limits::max_depth deep.
/// Threads: pure functions.
#pragma once

#include <functional>

#include "tensor/value.h"

namespace crossdock::formats::torch_zip {

void ForEachTensor(const Value& value, const std::function<void(const TensorValue&)>& visit);

/// The same value with each tensor replaced; the first error ends the walk.
[[nodiscard]] Result<Value> MapTensors(const Value& value,
                                       const std::function<Result<TensorValue>(const TensorValue&)>& map);

}  // namespace crossdock::formats::torch_zip
