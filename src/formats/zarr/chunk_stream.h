// SPDX-License-Identifier: Apache-2.0
/// \file  The elements of one encoded zarr chunk, as a stream: decoded, without the padding of chunks at the edge, int4 widened.
/// On disk: FORMAT.md, 2 and 4. At the last element the rest is decoded too, so that damage behind it is found.
/// Errors: kCorrupt; kIncomplete where a shard holds no chunk and zero is not what that means. Threads: as format.h says.
#pragma once

#include <memory>

#include "formats/format.h"
#include "formats/zarr/array_metadata.h"
#include "formats/zarr/byte_stream.h"

namespace crossdock::formats::zarr {

/// Whether a chunk of `stored` bytes can hold `decoded` ones: no codec here shrinks by more than 2^16.
[[nodiscard]] bool Plausible(std::int64_t stored, std::int64_t decoded);

/// `box` is what lies inside the array; `stored` the encoded unit, or the whole object of a shard of one unit; of no bytes: zeros.
/// Where `zero_fill`, a unit that such a shard does not hold is zero too.
[[nodiscard]] Result<std::unique_ptr<ElementStream>> OpenChunk(const ArrayMetadata& array, const Box& box, StoredBytes stored,
                                                               bool zero_fill);

}  // namespace crossdock::formats::zarr
