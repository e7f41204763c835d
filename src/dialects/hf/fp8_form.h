// SPDX-License-Identifier: Apache-2.0
/// \file  The rule by which the weights of an FP8 source are quantized: what `--fp8` means where no strategy and no block is named, so that
/// nothing is quantized a second time unasked.
/// Threads: pure.
#pragma once

#include <optional>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

struct Fp8Form {
  Fp8Options::Strategy strategy = Fp8Options::Strategy::kBlock;
  expr::BlockFormat block;   ///< of kBlock
};

/// Nothing where the source has no FP8 weights, or not all of them by one rule, or codes and scales that cannot go over (E5M2; U8). What
/// config.json declares is tried first: a small weight has one group by several rules. Layers of a template do not count.
[[nodiscard]] std::optional<Fp8Form> FormOfSource(const HubState& hub);

}  // namespace crossdock::dialects::hf
