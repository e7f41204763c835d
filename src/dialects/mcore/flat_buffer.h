// SPDX-License-Identifier: Apache-2.0
/// \file  Parameters in and out of the flat buffers of the distributed optimizer, as expressions.
/// On disk: `dp_reshardable` stores a tensor a bucket, `distrib_optim.pt` one a buffer (layout/bucket_layout.h).
/// Units: elements. Errors: kCorrupt for buffers too small for their layout. Threads: functions are pure.
#pragma once

#include <span>
#include <vector>

#include "expr/expr.h"
#include "layout/bucket_layout.h"

namespace crossdock::dialects::mcore {

/// One parameter of a buffer in the shape `shape`. `flats`: 1-D, one a bucket, or one with all buckets joined.
[[nodiscard]] Result<expr::Expr> OutOfBuffer(const layout::BucketLayout& layout, std::span<const expr::Expr> flats, std::size_t param,
                                             const Shape& shape);

/// The buffer with all buckets joined, of layout.total_unpadded() elements, as `distrib_optim.pt` stores it; gaps are zeros.
/// `params`: in order of registration, of any shape and one dtype.
[[nodiscard]] Result<expr::Expr> IntoBuffer(const layout::BucketLayout& layout, std::span<const expr::Expr> params);

}  // namespace crossdock::dialects::mcore
