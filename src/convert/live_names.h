// SPDX-License-Identifier: Apache-2.0
/// \file  What a rank calls its tensors (crossdock/live.h) against what a catalog in the legacy form calls them:
/// `mp_rank_00_001/model_optim_rng.pt#model1/decoder.layers.0.mlp.linear_fc1.weight` is `model1.decoder.layers.0.mlp.linear_fc1.weight`, and
/// without the word before the layers where the rank has one model chunk. State of the optimizer, which the legacy form numbers, is called
/// by its parameter here: `optimizer.exp_avg.model1.decoder.layers.0.mlp.linear_fc1.weight`, and of a flat part of it
/// `optimizer.exp_avg.decoder.final_layernorm.weight[0:16]` (elements of the row-major tensor, the end not included).
/// Errors: kUsage. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "crossdock/result.h"

namespace crossdock::convert {

/// Nothing for what is no parameter of a model (optimizer state).
[[nodiscard]] std::optional<std::string> LiveName(std::string_view entry_name);

struct StateName {
  std::string_view state;                ///< "param" (the master copy), "exp_avg" or "exp_avg_sq"
  std::string_view parameter;            ///< its name in the run
  std::optional<std::pair<std::int64_t, std::int64_t>> range;
};
[[nodiscard]] Result<StateName> ParseStateName(std::string_view name);

/// Whether it is meant for one.
[[nodiscard]] bool IsStateName(std::string_view name);

}  // namespace crossdock::convert
