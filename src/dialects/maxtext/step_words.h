// SPDX-License-Identifier: Apache-2.0
/// \file  What stands beside the arrays of a MaxText step, whoever arranged them: its custom metadata, the form that it is saved in, how it is loaded.
/// Of the custom metadata MaxText reads `scan_layers`; "crossdock" is ours, for the way back; the rest belongs to who saved the step.
/// Threads: functions are pure.
#pragma once

#include <string>
#include <vector>

#include "dialects/maxtext/consumer.h"
#include "tensor/value.h"

namespace crossdock::dialects::maxtext {

inline constexpr std::string_view kOwnWords = "crossdock";
inline constexpr std::string_view kLevelsWord = "tunix_levels";   ///< among them

/// `step`: words of the step's own; `carried`: ours, left out where there are none.
[[nodiscard]] Value StepMetadata(const Value& step, bool scanned, Value carried);
/// The words of a step's own in what a reader found: without `scan_layers` and ours.
[[nodiscard]] Value WordsOfStep(const Value& custom_metadata);

/// Ours in what a reader found: a dictionary, empty where there are none or where something else stands in their place.
[[nodiscard]] Value OwnWords(const Value& custom_metadata);
/// All that a reader found, without the record of a trainer's levels.
[[nodiscard]] Value WithoutLevels(Value custom_metadata);

/// objects["orbax"] of a target.
[[nodiscard]] Value OrbaxForm(const Consumer& consumer, int zstd_level);
[[nodiscard]] std::vector<std::string> LoadLine(bool full_state, bool scanned);

}  // namespace crossdock::dialects::maxtext
