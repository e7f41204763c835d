// SPDX-License-Identifier: Apache-2.0
/// \file  The directories mp_rank_* of one iteration and the files in them.
/// On disk: FORMAT.md. They are listed, never computed: not every combination of ranks exists.
/// Errors: kIncomplete names directories without a model file; kUnsupported those of Megatron-LM from before 2023.
/// Threads: functions are independent.
#pragma once

#include <string>
#include <vector>

#include "io/storage.h"

namespace crossdock::formats::mp_rank {

inline constexpr std::string_view kModelFile = "model_optim_rng.pt";
inline constexpr std::string_view kDistributedFile = "distrib_optim.pt";

struct RankDir {
  std::string name;                  ///< "mp_rank_00_001"
  bool distributed = false;          ///< has distrib_optim.pt beside its model_optim_rng.pt
  std::vector<std::string> others;   ///< files that are not read
};

/// True for "mp_rank_" and one to three numbers.
[[nodiscard]] bool IsRankDir(std::string_view name);

/// Sorted by name, empty ones left out: not every rank that makes its directory writes into it. kIncomplete when there are none.
[[nodiscard]] Result<std::vector<RankDir>> ListRankDirs(io::Storage& storage, const std::string& dir);

}  // namespace crossdock::formats::mp_rank
