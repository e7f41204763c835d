// SPDX-License-Identifier: Apache-2.0
/// \file  An Error of the engine as an exception of crossdock.errors; the one place that translates.
/// REQUIRES: the GIL, in every function.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "crossdock/result.h"

namespace crossdock::python {

/// Raises the exception of the error's code, with all its fields.
[[noreturn]] void Raise(const Error& error);

/// The value of a result, or its error raised.
template <typename T>
T Unwrap(Result<T> result) {
  if (!result) Raise(result.error());
  return *std::move(result);
}
inline void Unwrap(const Status& status) {
  if (!status) Raise(status.error());
}

}  // namespace crossdock::python
