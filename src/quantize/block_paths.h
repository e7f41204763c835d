// SPDX-License-Identifier: Apache-2.0
/// \file  The functions of block.h over a path that is named: for tests and measurements. Contracts as there.
#pragma once

#include "quantize/block.h"
#include "quantize/simd/path.h"

namespace crossdock::quantize {

NonFinite QuantizeBlocksBy(const simd::Path& path, const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols,
                           const Fp8Rule& rule, std::byte* q, float* s);
[[nodiscard]] float AmaxBy(const simd::Path& path, const std::byte* w, DType dtype, std::int64_t count, NonFinite* found);
void QuantizeWithScaleBy(const simd::Path& path, const std::byte* w, DType dtype, std::int64_t count, float scale,
                         const Fp8Rule& rule, std::byte* q);

}  // namespace crossdock::quantize
