// SPDX-License-Identifier: Apache-2.0
/// \file  Into which chunks arrays are cut where chunks are compressed: whoever compresses one holds it whole, and whoever reads a part
/// of an array decodes whole chunks. So a chunk is one layer of one expert where it can be, and of a matrix a part with long sides on both
/// axes, for most matrices are transposed on their way.
/// Invariants: chunks lie on a regular grid; an axis is cut into equal parts, only the first that is longer than one may end in a shorter
/// one (zarr stores that chunk whole). Errors: none. Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/catalog.h"

namespace crossdock::dialects::maxtext {

/// The bytes of a chunk for a checkpoint of `total` bytes: 4 MiB, doubled until there are no more than 2^18 chunks.
[[nodiscard]] std::int64_t ChunkBytes(std::int64_t total);
/// The shape of the chunks of an array; `stacks`: its axes of layers and experts, which are cut first. Axes of length 0 are left alone.
[[nodiscard]] Shape ChunkShape(const Shape& shape, std::int64_t element, const std::vector<int>& stacks, std::int64_t most);
/// The chunks in the order of their positions.
[[nodiscard]] std::vector<Chunk> CutIntoChunks(const Shape& shape, const Shape& chunk);

}  // namespace crossdock::dialects::maxtext
