// SPDX-License-Identifier: Apache-2.0
/// \file  The element types a checkpoint may hold.
/// Names are those of safetensors (upstream 0.8.0); torch's are mapped in formats/torch_zip.
/// Invariant: kF4 and the F6 types are sub-byte: sizes are computed in bits (see ByteSize).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "crossdock/result.h"
#include "tensor/dims.h"

namespace crossdock {

enum class DType : std::uint8_t {
  // In the order in which the safetensors writer sorts tensors (descending alignment).
  kU64, kI64, kF64, kC64, kF32, kU32, kI32, kBF16, kF16, kU16, kI16,
  kF8E5M2FNUZ, kF8E4M3FNUZ, kF8E8M0, kF8E4M3, kF8E5M2, kI8, kU8,
  kF6E3M2, kF6E2M3, kF4, kBool,
};
inline constexpr int kDTypeCount = 22;

[[nodiscard]] int BitsOf(DType dtype);
/// "BF16", "F8_E4M3", ... exactly as a safetensors header spells it.
[[nodiscard]] std::string_view DTypeName(DType dtype);
[[nodiscard]] std::optional<DType> DTypeFromName(std::string_view name);
/// True for F64, F32, F16, BF16 and the 8-, 6- and 4-bit floats.
[[nodiscard]] bool IsFloating(DType dtype);
/// Whole bytes per element; REQUIRES: BitsOf(dtype) % 8 == 0.
[[nodiscard]] std::int64_t ElementSize(DType dtype);
/// Bytes of a dense tensor. kCorrupt on overflow, or when sub-byte elements fill no whole bytes.
[[nodiscard]] Result<std::int64_t> ByteSize(DType dtype, const Shape& shape);

}  // namespace crossdock
