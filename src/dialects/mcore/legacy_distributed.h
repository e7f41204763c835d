// SPDX-License-Identifier: Apache-2.0
/// \file  The distributed optimizer's state of one legacy rank, parameter by parameter.
/// On disk (megatron-core 0.19.2, distrib_optimizer.py, `get_parameter_state_dp_zero`): `distrib_optim.pt` = {`buckets_coalesced`:
/// True, buffer: {(param dtype, grad dtype): {`param`, `exp_avg`, `exp_avg_sq`: flat, `numel_unpadded`}}}; before the buckets
/// were joined, each state was a list of them and `per_bucket_numel_unpadded` stood beside the buffers. Buffers count model
/// chunks x dtypes. Where a parameter lies follows from the order of registration, which is that of the model's own dict, and
/// from the run's bucket size (layout/bucket_layout.h).
/// Invariant: the sizes that are stored agree with the layout. As for `dp_reshardable`, the result must be proven by the
/// masters (verify/masters.h). Errors: kUnsupported and kCorrupt say why. Threads: functions are pure.
#pragma once

#include "dialects/mcore/legacy_model.h"
#include "dialects/mcore/legacy_state.h"
#include "dialects/mcore/legacy_ranks.h"

namespace crossdock::dialects::mcore {

/// With expert parallelism the file is a list: the state of the dense parameters, then that of the experts; None where another rank
/// writes it, and ranks that write neither have no file: they give what they have.
[[nodiscard]] Result<LegacyState> ReadDistributedOptimizer(const Catalog& source, const LegacyRanks& ranks, const LegacyRank& rank, const LegacyModel& shard);

/// The bucket size of a model chunk's buffers, as the run's arguments give it (training.py, resolve_ddp_bucket_size); none:
/// one bucket. `parameters`: elements of all model chunks of the rank.
[[nodiscard]] std::optional<std::int64_t> BucketSizeOf(const Value& args, int stage, std::size_t chunk, std::int64_t parameters);

}  // namespace crossdock::dialects::mcore
