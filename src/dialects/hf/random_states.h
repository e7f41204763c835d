// SPDX-License-Identifier: Apache-2.0
/// \file  RandomStates as the metadata string `crossdock_random_states` of full-state files, and back.
/// On disk: {"layout": ..., "states": {KEY: value}} in JSON. What JSON lacks is tagged: {"__tuple__": [...]}, {"__bytes__": hex},
/// {"__tensor__": [dtype, shape, hex]}, {"__object__": [form, module, name, [arguments][, state]]} for NumPy's arrays. Nothing is run.
/// Invariant: DecodeRandomStates(EncodeRandomStates(r)) equals r.
/// Errors: kUnsupported for values that random states do not need, kCorrupt for a string that is no such JSON. Threads: functions are pure.
#pragma once

#include <string>

#include "crossdock/result.h"
#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

inline constexpr const char* kRandomStatesKey = "crossdock_random_states";

[[nodiscard]] Result<std::string> EncodeRandomStates(const RandomStates& random);
[[nodiscard]] Result<RandomStates> DecodeRandomStates(const std::string& text);

}  // namespace crossdock::dialects::hf
