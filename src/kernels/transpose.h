// SPDX-License-Identifier: Apache-2.0
/// \file  The blocked 2-D transpose under CopyStrided.
/// Blocks of 64 x 64 elements keep both sides in the L1 cache; inside, 2-byte and 4-byte elements go through SSE2
/// registers (8 x 8 and 4 x 4). A naive loop is twelve times slower on 2-byte elements: every store opens a line.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crossdock::kernels {

/// to[i * to_stride + j] = from[j * from_stride + i] for i < rows, j < cols; strides in elements of `element` bytes
/// (1, 2, 4 or 8). Strides may be negative. The regions must not overlap.
void Transpose2D(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
                 std::int64_t rows, std::int64_t cols, std::int64_t element);

}  // namespace crossdock::kernels
