// SPDX-License-Identifier: Apache-2.0
/// \file  Long work for Python: it runs on a thread of its own without the GIL, while the calling thread waits, hands progress and
/// notices to Python functions, and looks for signals. So callbacks run in the thread that called, Ctrl-C is seen within a twentieth of
/// a second, and other Python threads go on.
/// An exception of a callback or a signal handler stops the work through its stop token, and is raised when the work has ended; it comes
/// before whatever the work returned.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <utility>

#include "crossdock/options.h"
#include "crossdock/result.h"

#include "bindings/raise.h"

namespace crossdock::python {

/// What the caller wants to be told; each None or a callable.
struct Callbacks {
  nanobind::object progress;   ///< (phase: str, bytes_done: int, bytes_total: int, current: str)
  nanobind::object notice;     ///< (text: str)
};

/// Runs `work` as above. REQUIRES: the GIL is held; `work` touches no Python object.
void RunWithoutGil(const Callbacks& callbacks, const std::function<void(const Hooks&)>& work);

/// The value of `work`, a function of Hooks that returns a Result, or its error raised.
template <typename Work>
auto RunAndUnwrap(const Callbacks& callbacks, const Work& work) {
  using Outcome = decltype(work(std::declval<const Hooks&>()));
  std::optional<Outcome> outcome;
  RunWithoutGil(callbacks, [&](const Hooks& hooks) { outcome.emplace(work(hooks)); });
  return Unwrap(*std::move(outcome));
}

}  // namespace crossdock::python
