// SPDX-License-Identifier: Apache-2.0
/// \file  The index of a shard: where its inner chunks lie in the stored object.
/// On disk (FORMAT.md, 4; zarr codec sharding_indexed 1.0): u64 offset and u64 length for each inner chunk, row-major, both 2^64-1
/// for one that is not stored, then the CRC-32C of all that when the codec says so; at the end of the object, or at its start.
/// Errors: kCorrupt. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/zarr/array_metadata.h"
#include "formats/zarr/byte_stream.h"

namespace crossdock::formats::zarr {

[[nodiscard]] std::int64_t ShardIndexBytes(const Sharding& sharding, std::int64_t chunks);

/// The place of each inner chunk within the object; checked to lie in it.
[[nodiscard]] Result<std::vector<std::optional<ByteRange>>> ReadShardIndex(const Sharding& sharding, std::int64_t chunks,
                                                                           const StoredBytes& object);

/// Where the elements of a plain shard of one inner chunk lie in `file`, given the range that they have when they fill the
/// object but for the index, as every writer places them.
[[nodiscard]] Result<ByteRange> LocateInLoneShard(const Sharding& sharding, const io::ReadFile& file, ByteRange elements);

}  // namespace crossdock::formats::zarr
