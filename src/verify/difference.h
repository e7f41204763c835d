// SPDX-License-Identifier: Apache-2.0
/// \file  How far two runs of elements differ: the counters of one tensor, merged tile by tile.
/// Source of the tolerances: the command line's contract. exact: |a-b| <= 1e-6 + 1e-4 |b|; close: |a-b| <= 1e-4 +
/// 1e-3 |b|, both in float64. Bytes decide first: NaN payloads and -0 count.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace crossdock::verify {

struct TensorDifference {
  std::int64_t elements = 0;
  std::int64_t differing_bits = 0;  ///< elements whose bytes (after widening, where dtypes differ) are not equal
  std::int64_t not_exact = 0;
  std::int64_t not_close = 0;
  std::int64_t beyond_ulp = 0;      ///< elements more than one unit in the last place of the narrower dtype apart
  std::int64_t nonfinite = 0;       ///< NaN or infinity on either side
  std::int64_t incomparable = 0;    ///< differing elements with a NaN or an infinity, which no distance measures
  double max_abs = 0;               ///< over the comparable ones
  double sum_abs = 0;
  std::int64_t first_index = -1;    ///< row-major index of the first differing element
};

/// Adds `count` elements that start at element `base` of the tensor.
void Accumulate(std::span<const std::byte> a, DType a_type, std::span<const std::byte> b, DType b_type,
                std::int64_t base, TensorDifference* into);

}  // namespace crossdock::verify
