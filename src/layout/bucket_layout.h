// SPDX-License-Identifier: Apache-2.0
/// \file  Where each parameter lies in the flat buffers of Megatron's distributed optimizer, which no checkpoint records.
/// Source: megatron-core 0.19.2, `DistributedOptimizer._compute_per_buffer_param_layout` and optimizer/param_layout.py:
/// parameters in reverse order of registration, each at a multiple of 64 elements; a bucket closes when it is large enough,
/// and a shared embedding has a bucket of its own; a bucket's end is padded to a multiple of lcm(DP, 128), or of lcm(DP, 2^16)
/// with --ddp-pad-buckets-for-high-nccl-busbw. On disk that last padding is left out: `dp_reshardable` stores each bucket
/// without it, `distrib_optim.pt` all buckets of a buffer without it in one tensor.
/// Units: elements. Errors: kCorrupt for sizes that no buffer has, or that are not those that were recorded.
/// Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::layout {

struct BufferParam {
  std::int64_t numel = 0;
  /// The embedding of a first stage, or its copy of a last stage, when both are one weight and there are more stages.
  bool shared_embedding = false;
};

struct BucketRules {
  std::int64_t data_parallel = 1;           ///< ranks that share a buffer: DP x CP
  std::optional<std::int64_t> bucket_size;  ///< none: one bucket (no overlap, a stage after the first, a later model chunk)
  bool high_busbw = false;                  ///< pad_buckets_for_high_nccl_busbw
};

struct BucketLayout {
  struct Place {
    std::int64_t bucket = 0;
    std::int64_t start = 0;        ///< in its bucket
    std::int64_t coalesced = 0;    ///< in the buckets joined without the padding of their ends
  };
  std::vector<Place> params;       ///< in order of registration, as given
  std::vector<std::int64_t> numel_unpadded;  ///< of each bucket, as stored
  std::vector<std::int64_t> numel;           ///< of each bucket, with its padding; empty where the rules are not known

  [[nodiscard]] std::int64_t total_unpadded() const;
};

/// As the library lays out. REQUIRES: rules.data_parallel >= 1.
[[nodiscard]] Result<BucketLayout> MakeBucketLayout(std::span<const BufferParam> params, const BucketRules& rules);

/// The layout whose buckets have the recorded sizes (`per_bucket_numel_unpadded`): they tell where each bucket ends, so that
/// the run's bucket size is not needed. kCorrupt when no division of the parameters into buckets has these sizes.
[[nodiscard]] Result<BucketLayout> FitBucketLayout(std::span<const BufferParam> params, std::span<const std::int64_t> numel_unpadded);

/// A multiple of which a bucket's padded size is.
[[nodiscard]] std::int64_t BucketEndDivisor(std::int64_t data_parallel, bool high_busbw);

/// Compares a bucket's stored pieces with the layout: Megatron writes one piece a parameter, one for each gap, and cuts both
/// where a data-parallel rank's share ends. `edges`: ascending starts of the pieces. kCorrupt when a parameter begins or
/// ends inside a piece, or a piece begins where neither a parameter nor a gap nor a share does. `share`: elements a
/// data-parallel rank, where known.
[[nodiscard]] Status CheckPieces(const BucketLayout& layout, std::span<const BufferParam> params, std::int64_t bucket,
                                 std::span<const std::int64_t> edges, std::optional<std::int64_t> share);

}  // namespace crossdock::layout
