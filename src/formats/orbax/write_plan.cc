// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/write_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "formats/zarr/array_metadata.h"
#include "formats/zarr/dtype_names.h"

namespace crossdock::formats::orbax {
namespace {

Error NoGrid(const Entry& entry, std::string found) {
  return MakeError(ErrorCode::kUnsupported, "a tensor is cut in a way that zarr has no grid for")
      .WithTensor(entry.name)
      .WithExpected("chunks of one shape on a regular grid")
      .WithFound(std::move(found));
}

/// What is cut off at the edge must lie behind everything that is kept: all axes before the one that is cut hold one element.
bool IsPrefix(const Shape& kept, const Shape& whole) {
  std::size_t axis = 0;
  while (axis < kept.size() && kept[axis] == whole[axis] && whole[axis] == 1) ++axis;
  for (++axis; axis < kept.size(); ++axis) {
    if (kept[axis] != whole[axis]) return false;
  }
  return true;
}

std::string Sizes(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

}  // namespace

Result<WriteGrid> GridOf(const Entry& entry) {
  if (CheckedCount(entry.shape) == 0) {
    return MakeError(ErrorCode::kUnsupported, "Orbax stores no tensors without elements").WithTensor(entry.name).WithFound("shape " + ToString(entry.shape));
  }
  const auto first = std::ranges::find_if(entry.chunks, [](const Chunk& c) { return std::ranges::all_of(c.box.offsets, [](std::int64_t o) { return o == 0; }); });
  if (first == entry.chunks.end()) return NoGrid(entry, "no chunk at its beginning");
  WriteGrid grid{first->box.sizes, 0};
  std::int64_t cells = 1;
  for (std::size_t axis = 0; axis < entry.shape.size(); ++axis) {
    const std::int64_t size = grid.chunk_shape[axis];
    cells *= (entry.shape[axis] - 1) / size + 1;  // no more than the elements of the tensor
  }
  if (cells != static_cast<std::int64_t>(entry.chunks.size())) return NoGrid(entry, fmt::format("{} chunks of {} in {}", entry.chunks.size(), ToString(grid.chunk_shape), ToString(entry.shape)));
  for (const Chunk& chunk : entry.chunks) {
    for (std::size_t axis = 0; axis < entry.shape.size(); ++axis) {
      const std::int64_t size = grid.chunk_shape[axis];
      const std::int64_t offset = chunk.box.offsets[axis];
      if (offset % size != 0 || chunk.box.sizes[axis] != std::min(size, entry.shape[axis] - offset)) {
        return NoGrid(entry, "chunk " + ToString(chunk.box) + " beside chunks of " + ToString(grid.chunk_shape));
      }
    }
    if (!IsPrefix(chunk.box.sizes, grid.chunk_shape)) {
      return NoGrid(entry, "chunk " + ToString(chunk.box) + ", which is cut within its rows by the edge");
    }
  }
  CROSSDOCK_ASSIGN_OR_RETURN(grid.object_bytes, ByteSize(entry.dtype, grid.chunk_shape));
  return grid;
}

std::string KeyOf(const Chunk& chunk, const WriteGrid& grid, bool zarr3) {
  zarr::ArrayMetadata keys;
  keys.prefixed = zarr3;
  keys.separator = zarr3 ? '/' : '.';
  Dims position = chunk.box.offsets;
  for (std::size_t axis = 0; axis < position.size(); ++axis) position[axis] /= grid.chunk_shape[axis];
  return zarr::ChunkKey(keys, position);
}

Result<std::string> ArrayJson(const Entry& entry, const WriteGrid& grid, bool zarr3, int zstd_level) {
  const std::optional<std::string_view> name = zarr3 ? zarr::Zarr3Name(entry.dtype) : zarr::ZarrName(entry.dtype);
  if (!name) {
    return MakeError(ErrorCode::kUnsupported, fmt::format("zarr has no name for {}", DTypeName(entry.dtype)))
        .WithTensor(entry.name).WithHint("write another dtype");
  }
  if (!zarr3) {
    return fmt::format(R"({{"chunks":{},"compressor":{},"dimension_separator":".","dtype":"{}","fill_value":null,"filters":null,"order":"C","shape":{},"zarr_format":2}})",
                       Sizes(grid.chunk_shape), zstd_level == 0 ? "null" : fmt::format(R"({{"id":"zstd","level":{}}})", zstd_level), *name, Sizes(entry.shape));
  }
  const bool wide = ElementSize(entry.dtype) > 1;
  const char* fill = entry.dtype == DType::kBool ? "false" : entry.dtype == DType::kC64 ? "[0.0,0.0]" : IsFloating(entry.dtype) ? "0.0" : "0";
  return fmt::format(
      R"({{"chunk_grid":{{"configuration":{{"chunk_shape":{}}},"name":"regular"}},"chunk_key_encoding":{{"name":"default"}},"codecs":[{{{}"name":"bytes"}}{}],"data_type":"{}","fill_value":{},"node_type":"array","shape":{},"zarr_format":3}})",
      Sizes(grid.chunk_shape), wide ? R"("configuration":{"endian":"little"},)" : "",
      zstd_level == 0 ? "" : fmt::format(R"(,{{"configuration":{{"checksum":false,"level":{}}},"name":"zstd"}})", zstd_level), *name, fill, Sizes(entry.shape));
}

}  // namespace crossdock::formats::orbax
