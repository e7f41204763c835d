// SPDX-License-Identifier: Apache-2.0
/// \file  Elementwise conversion between floating types, and the scalar reference.
/// Rounding: to nearest, ties to even; overflow to F16 is infinity; denormals are kept. Same as torch's `.to()`,
/// bit for bit, for F64, F32, BF16, F16: so F64 goes to the 16-bit types *through F32*, rounding twice, as torch does.
/// NaN: becomes a quiet NaN with its sign and upper payload bits (torch has two answers of its own, 0x7FC0 and 0xFFFF,
/// by code path). BF16 to F32 is a shift: every bit stays.
/// Equal types are a copy of bytes. The 8-bit floats convert through F32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace crossdock::kernels {

/// Contiguous; buffers of any alignment that do not overlap. REQUIRES: CanCast(from, to).
void Cast(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count);
/// How many elements of `to` are infinite or NaN whose origin in `from` is finite: what a Cast, or arithmetic, could not
/// hold. Cheap where `to` is all finite: nothing else is looked at then.
[[nodiscard]] std::int64_t CountOverflows(const std::byte* from, DType from_type, const std::byte* to, DType to_type, std::int64_t count);
/// F64, F32, BF16, F16 and the 8-bit floats, each to each.
[[nodiscard]] bool CanCast(DType from, DType to);
/// One element, any floating type of whole bytes (FP8 included), as double; and back with the rounding above.
[[nodiscard]] double LoadAsDouble(const std::byte* p, DType type);
void StoreFromDouble(double v, std::byte* p, DType type);

}  // namespace crossdock::kernels
