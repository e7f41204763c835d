// SPDX-License-Identifier: Apache-2.0
/// \file  Which step of a run root is meant: a number, or `release`, which has none.
/// Threads: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace crossdock {

struct StepChoice {
  std::int64_t number = 0;  ///< 0 for `release`, as Megatron counts it
  bool release = false;
  bool operator==(const StepChoice&) const = default;
};

/// "20", "release": as --step takes it.
[[nodiscard]] inline std::string StepWord(const StepChoice& step) { return step.release ? "release" : std::to_string(step.number); }

}  // namespace crossdock
