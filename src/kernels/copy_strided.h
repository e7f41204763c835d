// SPDX-License-Identifier: Apache-2.0
/// \file  Moves elements between two buffers along nested loops; the fast path and its scalar reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace crossdock::kernels {

/// One loop of a strided copy; counts in elements, strides in elements, negative where the source is reversed.
struct StrideDim {
  std::int64_t count, from_stride, to_stride;
};

/// to[to_offset + sum i_k*to_stride_k] = from[from_offset + sum i_k*from_stride_k], `element` bytes each (1, 2, 4, 8).
/// Contiguous inner runs go by memcpy; a pair of loops that transposes goes in blocks that fit the cache.
void CopyStrided(const std::byte* from, std::int64_t from_offset, std::byte* to, std::int64_t to_offset,
                 std::span<const StrideDim> dims, std::int64_t element);
/// The same, element by element: the judge of the tests.
void CopyStridedReference(const std::byte* from, std::int64_t from_offset, std::byte* to, std::int64_t to_offset,
                          std::span<const StrideDim> dims, std::int64_t element);
/// Zeros along the `to` side.
void FillStrided(std::byte* to, std::int64_t to_offset, std::span<const StrideDim> dims, std::int64_t element);

}  // namespace crossdock::kernels
