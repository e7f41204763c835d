// SPDX-License-Identifier: Apache-2.0
/// \file  The chunks of a zarr array: which box each stored object holds, and where its bytes lie.
/// On disk (FORMAT.md, 2 and 4): a regular grid; every object holds a whole chunk, row-major, also at the edges, where it
/// reaches beyond the array. What lies beyond is padding: a chunk that is stored plain becomes the contiguous pieces that lie inside;
/// one that is encoded becomes one kEncoded chunk of what lies inside (chunk_stream.h). A shard of several chunks is taken apart by its
/// index here; the index of a shard of one chunk is read when the chunk is.
/// Whoever calls says where an object is, so that the same code serves directories and key-value files.
/// Invariants: the chunks cover the shape exactly once, in row-major order of the grid.
/// Errors: kIncomplete names missing objects (a null fill value means that their content is undefined; one that is a number is
/// made up only where the caller says so), kCorrupt an object of another size or an impossible one, kUnsupported more than kMostPieces
/// pieces. Threads: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/zarr/array_metadata.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::zarr {

inline constexpr std::int64_t kMostPieces = std::int64_t{1} << 20U;  ///< of one array

/// Where a stored object lies.
struct Stored {
  std::int32_t file = -1;  ///< index into Catalog::files
  ByteRange bytes;
  /// The object itself, where it lies within the record at `bytes` and has no range of its own (an inline value).
  std::optional<std::string> inlined = std::nullopt;
};
/// Answers a chunk's key with its place, or nothing when there is no such object.
using FindObject = std::function<Result<std::optional<Stored>>(const std::string& key)>;

struct ObjectStore {
  FindObject find;
  /// Opens a file of the catalog: for the indexes of shards that hold several chunks.
  std::function<Result<std::shared_ptr<const io::ReadFile>>(std::int32_t file)> open;
  /// Set when missing objects are zeros and the array says so too (ArrayMetadata::zero_fill): where such a chunk is said to lie.
  std::optional<Stored> zeros;
};

struct PlacedChunks {
  std::vector<Chunk> chunks;
  std::map<std::int32_t, std::string> inlined;  ///< what to decode for a chunk whose object is inlined
};

[[nodiscard]] Result<PlacedChunks> PlaceChunks(const ArrayMetadata& array, const ObjectStore& store);
/// Of arrays that are stored plain, without shards and inlined objects. REQUIRES: that.
[[nodiscard]] Result<std::vector<Chunk>> PlaceChunks(const ArrayMetadata& array, const FindObject& find);

}  // namespace crossdock::formats::zarr
