// SPDX-License-Identifier: Apache-2.0
/// \file  What the writer of an item has to say of each array: its chunk grid, its metadata text and the keys of its chunks.
/// On disk (FORMAT.md, 2 and 4): zarr v3 with codecs [bytes] or [bytes, zstd], or v2 with the compressor null or zstd.
/// Errors: kUnsupported: chunks that are no regular grid of plain chunks, types without a name, arrays without elements. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "crossdock/result.h"
#include "tensor/catalog.h"

namespace crossdock::formats::orbax {

/// The chunks of an entry as a regular grid.
struct WriteGrid {
  Shape chunk_shape;
  std::int64_t object_bytes = 0;  ///< of a stored chunk: whole, also at the edge
};

/// Every chunk lies on the grid of the first, and what of it lies inside the array comes first in it without a gap.
[[nodiscard]] Result<WriteGrid> GridOf(const Entry& entry);
/// "c/0/1" or "0.1".
[[nodiscard]] std::string KeyOf(const Chunk& chunk, const WriteGrid& grid, bool zarr3);
/// `zarr.json` or `.zarray`, as TensorStore prints it.
/// `zstd_level` 0: chunks are stored as they are.
[[nodiscard]] Result<std::string> ArrayJson(const Entry& entry, const WriteGrid& grid, bool zarr3, int zstd_level = 0);

}  // namespace crossdock::formats::orbax
