// SPDX-License-Identifier: Apache-2.0
/// \file  Flattened optimizer shards put together again: what the distributed optimizer of Megatron-Core 0.12 to 0.15 stored.
/// On disk (megatron-core 0.12.1, dist_checkpointing/strategies/torch.py, `nd_flattened`): a tensor [X, Y, Z] that
/// ranks hold in blocks [x, y, z] is stored as [X/x, Y/y, Z/z, x*y*z]; a chunk [1, 1, 1, n] at (i, j, k, s) has the
/// elements s .. s+n of block (i, j, k), row-major.
/// Errors: kCorrupt when the stored shape is no such grid. Threads: functions are pure.
#pragma once

#include "expr/expr.h"

namespace crossdock::dialects::mcore {

/// The tensor of shape `logical` as movement of `stored`, its grid of blocks.
[[nodiscard]] Result<expr::Expr> FromFlattenedBlocks(const expr::Expr& stored, const Shape& logical);

}  // namespace crossdock::dialects::mcore
