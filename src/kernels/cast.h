// SPDX-License-Identifier: Apache-2.0
/// \file  Elementwise conversion between floating types, and the scalar reference.
/// Rounding: to nearest, ties to even; NaN stays a quiet NaN with its upper payload bits; overflow to F16 is infinity;
/// denormals are kept. Same as torch's `.to()`, bit for bit, for F64, F32, BF16, F16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace crossdock::kernels {

/// Contiguous. REQUIRES: CanCast(from, to).
void Cast(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count);
[[nodiscard]] bool CanCast(DType from, DType to);
/// One element, any floating type (FP8 included), as double; and back with the rounding above.
[[nodiscard]] double LoadAsDouble(const std::byte* p, DType type);
void StoreFromDouble(double v, std::byte* p, DType type);

}  // namespace crossdock::kernels
