// SPDX-License-Identifier: Apache-2.0
/// \file  What one zarr array says of itself: shape, chunk shape, element type, how its chunks are named.
/// On disk (FORMAT.md, 1; the zarr v2 storage specification): `.zarray`, JSON with zarr_format 2, shape, chunks, dtype,
/// compressor, fill_value, order, filters, and dimension_separator ("." when absent).
/// The struct says what is common to all versions of zarr, so that chunk_grid needs no other.
/// Invariants: shape and chunk_shape have equal ranks, chunk sizes are at least 1, the bytes of array and chunk do not overflow.
/// Errors: kCorrupt (malformed), kUnsupported by name of what is not carried (a compressor, filters, order F, big-endian
/// or unknown types, another zarr_format). Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace crossdock::formats::zarr {

struct ArrayMetadata {
  Shape shape;
  Shape chunk_shape;
  DType dtype = DType::kF32;
  char separator = '.';
};

[[nodiscard]] Result<ArrayMetadata> ParseZarray(std::string_view json);

/// "<f4", "|b1", "bfloat16": the dtype of a v2 array; nothing for a type that a catalog has no word for.
[[nodiscard]] std::optional<DType> DTypeFromZarr(std::string_view name);

/// The key of a chunk below its array: "1.0.2"; "0" for an array without axes.
[[nodiscard]] std::string ChunkKey(const ArrayMetadata& array, const Dims& position);

}  // namespace crossdock::formats::zarr
