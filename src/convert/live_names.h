// SPDX-License-Identifier: Apache-2.0
/// \file  What a rank calls its tensors (crossdock/live.h) against what a catalog in the legacy form calls them:
/// `mp_rank_00_001/model_optim_rng.pt#model1/decoder.layers.0.mlp.linear_fc1.weight` is `model1.decoder.layers.0.mlp.linear_fc1.weight`, and
/// without the word before the layers where the rank has one model chunk. Threads: functions are pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace crossdock::convert {

/// Nothing for what is no parameter of a model (optimizer state).
[[nodiscard]] std::optional<std::string> LiveName(std::string_view entry_name);

}  // namespace crossdock::convert
