// SPDX-License-Identifier: Apache-2.0
/// \file  What one zarr array says of itself: shape, chunk shape, element type, how its chunks are named and encoded.
/// On disk (FORMAT.md, 1 and 4): v2 has `.zarray` (the zarr v2 storage specification), v3 `zarr.json` (zarr_json.h).
/// The struct says what is common to both, so that chunk_grid and chunk_stream need no other.
/// Invariants: shape and chunk_shape have equal ranks, chunk sizes are at least 1, the bytes of array and chunk do not overflow; a
/// shard holds a whole number of inner chunks.
/// Errors: kCorrupt (malformed), kUnsupported by name of what is not carried (a codec, filters, order F, big-endian
/// or unknown types, another zarr_format). Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/zarr/codecs.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace crossdock::formats::zarr {

/// v3's `sharding_indexed`: a stored object holds inner chunks and an index of where they lie.
struct Sharding {
  Shape inner;                 ///< of an inner chunk; divides the chunk shape
  Codecs codecs;               ///< of an inner chunk
  bool index_checksum = true;  ///< the index ends with its CRC-32C
  bool index_at_end = true;
};

struct ArrayMetadata {
  Shape shape;
  Shape chunk_shape;
  DType dtype = DType::kF32;
  char separator = '.';
  bool prefixed = false;             ///< keys are "c", separator, position (v3 `default`)
  Codecs codecs = {};                ///< of a stored object; none where there are shards
  std::optional<Sharding> sharding = std::nullopt;
  bool nibbles = false;              ///< `int4`: a byte an element, the value in its low half; dtype is I8 then
  bool zero_fill = false;            ///< what is not stored is zero (a null fill value counts as that)

  /// The shape that is encoded at once, and by what.
  [[nodiscard]] const Shape& unit_shape() const { return sharding ? sharding->inner : chunk_shape; }
  [[nodiscard]] const Codecs& unit_codecs() const { return sharding ? sharding->codecs : codecs; }
  /// The bytes of a unit are its elements.
  [[nodiscard]] bool plain() const { return unit_codecs().empty() && !nibbles; }
};

[[nodiscard]] Result<ArrayMetadata> ParseZarray(std::string_view json);

/// The key of a chunk below its array: "1.0.2", of v3 "c/1/0/2"; "0" or "c" for an array without axes.
[[nodiscard]] std::string ChunkKey(const ArrayMetadata& array, const Dims& position);

}  // namespace crossdock::formats::zarr
