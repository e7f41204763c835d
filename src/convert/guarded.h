// SPDX-License-Identifier: Apache-2.0
/// \file  Guarded: what a function throws, as an error. A rank that leaves a collective step by an exception would let the others wait for it.
/// Errors: kIo with what the exception says, and for memory that ran out. Threads: as the function.
#pragma once

#include <exception>
#include <new>

#include "crossdock/result.h"

namespace crossdock::convert {

/// What `function` returns: a Status or a Result.
template <typename Function>
[[nodiscard]] auto Guarded(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorCode::kIo, "there is not enough memory for a save");
  } catch (const std::exception& thrown) {
    return MakeError(ErrorCode::kIo, "the save was ended by an exception").WithFound(Printable(thrown.what()));
  }
}

}  // namespace crossdock::convert
