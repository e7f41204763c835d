// SPDX-License-Identifier: Apache-2.0
/// \file  Which casts keep every value, so that a cast back undoes them and none overflows.
#pragma once

#include "tensor/dtype.h"

namespace crossdock::expr {

/// True when every value of `from` is a value of `to`. Unnamed pairs count as lossy.
[[nodiscard]] constexpr bool IsLosslessCast(DType from, DType to) {
  if (from == to || (from == DType::kF32 && to == DType::kF64)) return true;
  const bool wide = to == DType::kF32 || to == DType::kF64;
  const bool half = to == DType::kBF16 || to == DType::kF16;  // both hold every FP8 value, not each other's
  if (from == DType::kBF16 || from == DType::kF16) return wide;
  if (from == DType::kF8E4M3 || from == DType::kF8E5M2) return wide || half;
  return false;
}

}  // namespace crossdock::expr
