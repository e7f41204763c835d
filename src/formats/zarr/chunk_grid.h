// SPDX-License-Identifier: Apache-2.0
/// \file  The chunks of a zarr array: which box each stored object holds, and where its bytes lie.
/// On disk (FORMAT.md, 2): a regular grid; every object holds a whole chunk, row-major, also at the edges, where it
/// reaches beyond the array. What lies beyond is padding: such a chunk becomes the contiguous pieces that lie inside.
/// Whoever calls says where an object is, so that the same code serves directories and key-value files.
/// Invariants: the chunks cover the shape exactly once, in row-major order of the grid; each is contiguous.
/// Errors: kIncomplete names missing objects (a null fill value means that their content is undefined; one that is a number is
/// not made up either), kCorrupt an object of another size, kUnsupported more than kMostPieces pieces. Threads: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/zarr/array_metadata.h"
#include "tensor/catalog.h"

namespace crossdock::formats::zarr {

inline constexpr std::int64_t kMostPieces = std::int64_t{1} << 20U;  ///< of one array

/// Where a stored object lies.
struct Stored {
  std::int32_t file = -1;  ///< index into Catalog::files
  ByteRange bytes;
};
/// Answers a chunk's key with its place, or nothing when there is no such object.
using FindObject = std::function<Result<std::optional<Stored>>(const std::string& key)>;

[[nodiscard]] Result<std::vector<Chunk>> PlaceChunks(const ArrayMetadata& array, const FindObject& find);

}  // namespace crossdock::formats::zarr
