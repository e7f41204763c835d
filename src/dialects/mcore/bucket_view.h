// SPDX-License-Identifier: Apache-2.0
/// \file  The Adam state of a `dp_reshardable` checkpoint as whole tensors: the places of its parameters are computed from
/// the run's own arguments, as no checkpoint records them (layout/bucket_layout.h, registration_order.h).
/// Invariant: what is recorded (sizes of buckets, pieces, dtypes) agrees with the computed layout, else it is refused. Sizes
/// cannot tell two parameters of equal size apart: the caller must prove the result by every master weight rounding to its
/// model weight (verify/masters.h) before anything is carried.
/// Errors: kIncomplete names the argument that is not stored; kCorrupt what does not agree; kUnsupported
/// parameters that no decoder layer has and other states than Adam's. Threads: functions are pure but for `load`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dialects/mcore/global_view.h"

namespace crossdock::dialects::mcore {

struct BucketState {
  std::vector<Entry> entries;              ///< `optimizer.state.<state>.<model key>`, without chunks, unsorted
  std::vector<expr::Expr> exprs;           ///< one an entry, over the source's entries
  ValueList param_groups;                  ///< of all model-parallel ranks, each once
  ValueList expert_groups;                 ///< of the experts' own optimizer, where they have one
  std::optional<Value> grad_scaler;        ///< of fp16 runs
  std::vector<std::string> notices;
};

[[nodiscard]] bool HasBuckets(const Catalog& source);
[[nodiscard]] Result<BucketState> ReadBuckets(const Catalog& source, const ObjectLoader& load);

}  // namespace crossdock::dialects::mcore
