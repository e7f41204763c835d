// SPDX-License-Identifier: Apache-2.0
/// \file  The proof that an optimizer state was put in order rightly: where the places of its parameters were computed and
/// not recorded, every master weight must round to its model weight.
/// A trainer copies masters into the model after each step, rounded to nearest even (torch's `.to()`); a master under another
/// parameter's name differs in nearly all elements. Equal dtypes must have equal bits; a NaN matches any NaN.
/// Reads both once. Memory: three tiles, whatever the model's size. Threads: used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "verify/verify.h"

namespace crossdock::verify {

/// A weight and its master, as expressions over the side's entries. REQUIRES: equal shapes.
struct MasterPair {
  std::string name;                ///< the weight's name in the source, for messages
  DType param_dtype = DType::kBF16;
  DType master_dtype = DType::kF32;
  Shape shape;
  expr::Expr param;
  expr::Expr master;
};

struct MasterOptions {
  std::int64_t memory = std::int64_t{512} << 20U;
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;  ///< elements
  std::stop_token stop;
};

/// `side.hub` is not used. Errors: kCorrupt names tensor, count and first place of the elements that differ, and what to do;
/// kCancelled.
[[nodiscard]] Status CheckMasters(const Side& side, std::span<const MasterPair> pairs, const MasterOptions& options);

}  // namespace crossdock::verify
