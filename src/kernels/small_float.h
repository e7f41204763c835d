// SPDX-License-Identifier: Apache-2.0
/// \file  The 8-bit floats, one element at a time: a table of five formats and one exact codec over it.
/// Facts: OCP OFP8 1.0 (E4M3 has no infinity, NaN is all ones; E5M2 is IEEE-like), OCP MX 1.0 (E8M0), and the FNUZ
/// pair (bias one more, no -0: 0x80 is the only NaN). Overflow as torch 2.15's `.to()` does it: E5M2 gives
/// infinity, E4M3 saturates (infinity too), the FNUZ pair gives NaN.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace crossdock::kernels {

[[nodiscard]] bool IsSmallFloat(DType type);
/// REQUIRES: IsSmallFloat(type).
[[nodiscard]] float DecodeSmallFloat(std::uint8_t bits, DType type);
/// To nearest, ties to even. REQUIRES: IsSmallFloat(type).
[[nodiscard]] std::uint8_t EncodeSmallFloat(float value, DType type);

}  // namespace crossdock::kernels
