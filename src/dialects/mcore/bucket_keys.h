// SPDX-License-Identifier: Apache-2.0
/// \file  The keys of `dp_reshardable` (formerly `fully_sharded_bucket_space`) and what stands beside its tensors.
/// On disk (megatron-core 0.12 to 0.19.2, distrib_optimizer.py): tensors
/// `optimizer.distributed.dp_group_idx_G.gbuf_idx_B.dtype_(<param dtype>, <grad dtype>).bucket_idx_K.<state>`, 1-D, and objects
/// `optimizer.distributed.dp_group_idx_G.{optimizer,per_bucket_numel,per_bucket_numel_unpadded}/shard_0_1`.
/// G is the rank in the model-parallel group, tp + TP * pp. A `chained_N.` before it belongs to one of several optimizers: with expert
/// parallelism 0 is that of dense parameters and 1 that of experts, whose G is etp + ETP * (ep + EP * pp).
/// Errors: kCorrupt for keys that are no such keys, kUnsupported for states of other optimizers than Adam.
/// Threads: functions are pure.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/catalog.h"

namespace crossdock::dialects::mcore {

inline constexpr std::array<std::string_view, 3> kBucketStates = {"param", "exp_avg", "exp_avg_sq"};
inline constexpr std::array kBucketSlots = {Slot::kMaster, Slot::kAdamMu, Slot::kAdamNu};  ///< what they hold

struct BucketKey {
  std::int64_t chained = -1;    ///< N of `chained_N.`; -1: there is none
  std::int64_t group = 0;       ///< G
  std::int64_t buffer = 0;      ///< B
  std::string dtypes;           ///< "(torch.bfloat16, torch.float32)"
  std::int64_t bucket = 0;      ///< K
  std::string state;
};
[[nodiscard]] Result<BucketKey> ParseBucketKey(std::string_view key);

/// One flat buffer of one model-parallel rank: by state, the source's entries in order of their buckets.
struct StoredBuffer {
  std::string dtypes;
  std::array<std::vector<std::int32_t>, kBucketStates.size()> entries;
};
/// Which one it is.
struct BufferPlace {
  std::int64_t chained = -1;    ///< N of `chained_N.`; -1: the only optimizer
  std::int64_t group = 0;       ///< G
  std::int64_t buffer = 0;      ///< B
  auto operator<=>(const BufferPlace&) const = default;
};
/// "chained_1.optimizer.distributed.dp_group_idx_3": where a rank's optimizer keeps everything.
[[nodiscard]] std::string GroupName(const BufferPlace& place);
/// kIncomplete when a bucket or a state of one is missing.
using StoredBuffers = std::map<BufferPlace, StoredBuffer>;
[[nodiscard]] Result<StoredBuffers> FindBuffers(const Catalog& catalog);

/// "(torch.bfloat16," for a parameter's dtype: how a buffer's dtypes begin.
[[nodiscard]] std::string BufferDTypePrefix(DType dtype);

}  // namespace crossdock::dialects::mcore
