// SPDX-License-Identifier: Apache-2.0
/// \file  The mcore dialect: Megatron-Core's global tensor names, optimizer keys, arguments and trackers.
#pragma once

#include <optional>
#include <string>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

struct ReadOptions {
  const family::FamilyFile* family = nullptr;  ///< --family or --rules; null = detect (assumption in notices)
  std::optional<family::ModelConfig> template_config;
  bool no_optim = false;                       ///< optimizer keys are left out by wish
  bool allow_unknown_tensors = false;
  bool allow_missing_tensors = false;          ///< for a comparison, which lists them; what is converted is whole
};

/// Catalog of a torch_dist iteration: objects "common" (common.pt or common_state) or "run_config.yaml", side files
/// of ITER/hf/. Both layer forms (leading axis, number), both fc1 forms ([2f,h]; weight_w and weight_v).
[[nodiscard]] Result<HubState> ReadHub(const Catalog& source, const ReadOptions& options);

/// Target: chunks for each (pp, tp) with shard = pp * tp_size + tp; objects "common" (written as common.pt),
/// "metadata.json", one empty `_extra_state` object a TE module; ITER/hf/ side files; tracker marker.
[[nodiscard]] Result<TargetState> WriteHub(const HubState& hub, const TargetOptions& options);

/// Megatron to Megatron without a family: names, shapes, unknown keys, objects and padding rows are kept, chunks are
/// cut anew by a generic table. kUsage when the new TP does not divide a cut axis.
[[nodiscard]] Result<TargetState> Reshard(const Catalog& source, const TargetOptions& options);

}  // namespace crossdock::dialects::mcore
