// SPDX-License-Identifier: Apache-2.0
/// \file  The parameters that the ranks of a legacy checkpoint hold, in the order of their files: what a merge starts from.
/// On disk: `model` (or `model0`, `model1`, ... with virtual stages) is a dict of local parameters in the order of their
/// registration; `_extra_state` items are no parameters.
/// Errors: kCorrupt for ranks that hold different parameters or layers without a number. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dialects/mcore/legacy_keys.h"
#include "dialects/mcore/legacy_ranks.h"

namespace crossdock::dialects::mcore {

struct LegacyTensor {
  std::string name;                    ///< of the module, nested keys joined by dots
  LegacyName meaning;
  std::int32_t entry = -1;             ///< in the source catalog
};

/// What one rank holds, model chunk by model chunk.
struct LegacyModel {
  std::vector<std::vector<LegacyTensor>> chunks;
  std::int64_t extra_states = 0;       ///< `_extra_state` items that were passed over
};
[[nodiscard]] Result<LegacyModel> ReadLegacyModel(const Catalog& source, const LegacyRank& rank);

/// The layers of each model chunk and stage, [chunk * pp + stage]: global layers are numbered through in this order in every
/// division that Megatron knows (megatron-core 0.19.2, transformer_layer.py, `get_transformer_layer_offset`).
[[nodiscard]] Result<std::vector<std::int64_t>> FirstLayers(const LegacyRanks& ranks, const std::vector<LegacyModel>& shards, std::int64_t* layers);

}  // namespace crossdock::dialects::mcore
