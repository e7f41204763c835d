// SPDX-License-Identifier: Apache-2.0
/// \file  The ranks of a legacy checkpoint: which tensor, pipeline and expert rank each directory belongs to.
/// On disk (Megatron-LM, training/checkpointing.py, `get_checkpoint_name`): `mp_rank_TT[_PPP][_EEE]`, PPP only with more
/// than one stage, EEE only with more than one expert rank: `mp_rank_00_001` alone says not which; the arguments do. Rank r of a
/// stage is tensor rank r % TP, expert rank (r / ETP) % EP and tensor rank r % ETP within an expert; those of data-parallel rank 0, by
/// either division, write. So not every pair (tensor, expert) exists, and the rank within an expert must follow from the tensor rank:
/// where ETP does not divide TP, ranks with other parts of the same experts write the same file (megatron-core 0.19.2), and
/// experts cannot be put together again.
/// Errors: kIncomplete names the directories of missing ranks; kCorrupt for names and arguments that contradict.
/// Threads: functions are pure. Ownership: a LegacyRank points into the catalog.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/catalog.h"

namespace crossdock::dialects::mcore {

inline constexpr std::string_view kLegacyModelFile = "model_optim_rng.pt";
inline constexpr std::string_view kLegacyDistributedFile = "distrib_optim.pt";

struct LegacyRank {
  std::string dir;                     ///< "mp_rank_00_001"
  int tensor = 0, pipeline = 0, expert = 0;
  const Value* file = nullptr;         ///< the object of model_optim_rng.pt
  const Value* distributed = nullptr;  ///< the object of distrib_optim.pt, or null
};

struct LegacyRanks {
  int tp = 1, pp = 1, ep = 1;
  int etp = 1;                         ///< tensor ranks of an expert
  /// First one a (pipeline, tensor), of any expert rank: ranks[pipeline * tp + tensor]; then the others.
  std::vector<LegacyRank> ranks;
  /// Who holds a part of the experts: ranks[experts[(pipeline * ep + expert) * etp + tensor within the expert]]. Empty where the names
  /// do not tell.
  std::vector<std::size_t> experts;
  Value args = Value::MakeDict();      ///< of the first rank; empty when none are stored
};

/// True for a catalog that the reader of legacy files made.
[[nodiscard]] bool IsLegacy(const Catalog& catalog);
/// Such a catalog whose one rank's dict was saved by DCP: the order of its parameters is no rule of the format.
[[nodiscard]] bool IsByTorchDcp(const Catalog& catalog);

[[nodiscard]] Result<LegacyRanks> FindLegacyRanks(const Catalog& catalog);

}  // namespace crossdock::dialects::mcore
