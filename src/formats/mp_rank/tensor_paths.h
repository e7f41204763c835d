// SPDX-License-Identifier: Apache-2.0
/// \file  The path of a tensor in a file's object: dict keys and list indices from the root, joined by '/'.
/// A key is a text as it is, an integer in decimals, a tuple "(a, b)" of such, a dtype "torch.bfloat16"; attributes of an
/// object count as keys. Paths need not be unique (a key may hold '/', or be 1 and "1"): readers refuse equal ones.
/// Threads: pure functions.
#pragma once

#include <functional>
#include <string>

#include "tensor/value.h"

namespace crossdock::formats::mp_rank {

[[nodiscard]] std::string KeyText(const Value& key);

/// The same value with each tensor replaced; the first error ends the walk. Keys are left alone.
using PathMap = std::function<Result<TensorValue>(const std::string& path, const TensorValue& tensor)>;
[[nodiscard]] Result<Value> MapTensorPaths(const Value& value, const std::string& path, const PathMap& map);

}  // namespace crossdock::formats::mp_rank
