// SPDX-License-Identifier: Apache-2.0
/// \file  What Muon's momentum is on both sides of a conversion, and the scaling where they differ.
/// Two conventions are in use: "ema", new = b old + (1 - b) gradient, and "sum", new = b old + gradient; a sum is 1 / (1 - b) times as large.
/// Known: Megatron-Core with emerging-optimizers (OrthogonalizedOptimizer: `momentum_buffer.lerp_(grad, 1 - momentum)`), and MaxText with optax
/// or its own Muon in the NNX form (`update_moment(..., order 1)`), keep an ema, as torch.optim.Muon does (`buf.lerp_(grad, 1 - momentum)`). Full-state files of ours record it. The Linen form has forks
/// that keep either, and `ling3-muon-full-state-v1` records nothing: there --muon-momentum says it.
/// Errors: kUsage (the option where nothing is open, or against what is known), kIncomplete (a conversion without b). Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convert/source.h"
#include "crossdock/options.h"
#include "tensor/value.h"

namespace crossdock::convert {

/// What is known of a target's convention before anybody says anything: "ema", or "" where it is open.
[[nodiscard]] std::string MomentumOfTarget(formats::Kind to, std::string_view consumer);

/// Settles source->momentum, scales the momentum of the hub where the two sides differ, and says so in the notices. Does nothing for a source
/// without Muon's state, or a target that holds none.
[[nodiscard]] Status SettleMomentum(formats::Kind to, const ConvertOptions& options, Source* source);

/// For summaries and manifests.
[[nodiscard]] Value MomentumJson(const Momentum& momentum);

}  // namespace crossdock::convert
