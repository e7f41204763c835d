// SPDX-License-Identifier: Apache-2.0
/// \file  Compares a Value with its description in an expected.json, which tests/golden/golden.py made (`describe`).
#pragma once

#include <functional>
#include <string>

#include "tensor/value.h"

namespace crossdock {

/// The row-major bytes of a tensor met in a file.
using TensorLoader = std::function<Result<std::string>(const TensorValue&)>;

/// Empty when `actual` is what `expected` describes, else where and how they differ.
[[nodiscard]] std::string Difference(const Value& actual, const Value& expected, const TensorLoader& load,
                                     const std::string& where = "value");

/// Content of a file under tests/golden; aborts the test program when it cannot be read.
[[nodiscard]] std::string ReadGolden(const std::string& path);

/// The parsed expected.json of tests/golden/<folder>.
[[nodiscard]] Value ReadExpected(const std::string& folder);

}  // namespace crossdock
