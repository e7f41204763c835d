// SPDX-License-Identifier: Apache-2.0
/// \file  RunMove: carries out one move of a task between two buffers: bytes moved, values cast, scaled or offset.
/// Values are changed in blocks that fit the first cache, so that a strided cast costs little more than the copy.
/// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/plan.h"

namespace crossdock::execute {

/// `from` is the read's buffer (unused for fills), `to` the output's or the scratch. REQUIRES: whole-byte dtypes, and
/// for every kCast op kernels::CanCast.
/// Returns how many finite values became infinite or NaN by the ops: the caller decides whether that may be.
[[nodiscard]] std::int64_t RunMove(const plan::Move& move, const std::byte* from, std::byte* to);

}  // namespace crossdock::execute
