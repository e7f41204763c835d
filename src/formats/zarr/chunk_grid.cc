// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/chunk_grid.h"

#include <algorithm>

#include "base/checked_math.h"

namespace crossdock::formats::zarr {
namespace {

constexpr std::size_t kMostNamed = 8;  // missing objects in one message

Error TooMany(const ArrayMetadata& array) {
  return MakeError(ErrorCode::kUnsupported, "a zarr array is cut into too many pieces")
      .WithExpected("at most " + std::to_string(kMostPieces))
      .WithFound("shape " + ToString(array.shape) + " in chunks of " + ToString(array.chunk_shape))
      .WithHint("save it in larger chunks");
}

/// Steps a position through a grid, row-major; false after the last.
bool Next(Dims& position, const Dims& grid) {
  for (std::size_t axis = grid.size(); axis-- > 0;) {
    if (++position[axis] < grid[axis]) return true;
    position[axis] = 0;
  }
  return false;
}

class Placer {
 public:
  Placer(const ArrayMetadata& array, const FindObject& find) : array_(array), find_(find) {}

  Result<std::vector<Chunk>> Run() {
    if (CheckedCount(array_.shape) == 0) return std::move(chunks_);
    CROSSDOCK_ASSIGN_OR_RETURN(const Dims grid, Grid());
    CROSSDOCK_ASSIGN_OR_RETURN(chunk_bytes_, ByteSize(array_.dtype, array_.chunk_shape));
    Dims position = Dims::Filled(grid.size(), 0);
    do {
      CROSSDOCK_RETURN_IF_ERROR(One(position));
    } while (missing_.size() <= kMostNamed && Next(position, grid));
    if (missing_.empty()) return std::move(chunks_);
    return Missing();
  }

 private:
  Result<Dims> Grid() const {
    Dims grid;
    std::int64_t objects = 1;
    for (std::size_t axis = 0; axis < array_.shape.size(); ++axis) {
      grid.push_back((array_.shape[axis] - 1) / array_.chunk_shape[axis] + 1);
      const std::optional<std::int64_t> product = CheckedMul(objects, grid.back());
      if (!product || *product > kMostPieces) return TooMany(array_);
      objects = *product;
    }
    return grid;
  }

  Status One(const Dims& position) {
    const std::string key = ChunkKey(array_, position);
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Stored> stored, find_(key));
    if (!stored) {
      missing_.push_back(key);
      return OkStatus();
    }
    if (stored->bytes.length != chunk_bytes_) {
      return MakeError(ErrorCode::kCorrupt, "a chunk of a zarr array is not as large as its metadata says")
          .WithExpected(std::to_string(chunk_bytes_) + " bytes in `" + Printable(key) + "`")
          .WithFound(std::to_string(stored->bytes.length));
    }
    return Cut(position, *stored);
  }

  /// The part of a stored chunk that lies inside the array, as contiguous pieces.
  Status Cut(const Dims& position, const Stored& stored) {
    const Shape& whole = array_.chunk_shape;
    const std::size_t rank = whole.size();
    Box inside;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      inside.offsets.push_back(position[axis] * whole[axis]);
      inside.sizes.push_back(std::min(whole[axis], array_.shape[axis] - inside.offsets[axis]));
    }
    // The inner axes that are not cut, and the first outside them, lie without a gap; those outside count pieces. An outer axis
    // of one piece may be cut or not: what is left of it is one block all the same.
    std::size_t run_axis = rank;
    while (run_axis > 0 && inside.sizes[run_axis - 1] == whole[run_axis - 1]) --run_axis;
    if (run_axis > 0) --run_axis;
    Dims outer;
    std::int64_t pieces = 1;
    for (std::size_t axis = 0; axis < run_axis; ++axis) {
      outer.push_back(inside.sizes[axis]);
      pieces *= inside.sizes[axis];  // no more than the elements of a chunk, which do not overflow
    }
    if (pieces > kMostPieces - static_cast<std::int64_t>(chunks_.size())) return TooMany(array_);
    const Dims strides = RowMajorStrides(whole);
    const std::int64_t element = ElementSize(array_.dtype);
    Box box = inside;
    for (std::size_t axis = 0; axis < run_axis; ++axis) box.sizes[axis] = 1;
    const std::int64_t length = CheckedCount(box.sizes) * element;
    Dims at = Dims::Filled(outer.size(), 0);
    do {
      std::int64_t first = 0;
      for (std::size_t axis = 0; axis < run_axis; ++axis) {
        box.offsets[axis] = inside.offsets[axis] + at[axis];
        first += at[axis] * strides[axis];
      }
      chunks_.push_back({box, stored.file, {stored.bytes.offset + first * element, length}, ChunkEncoding::kRaw, 0});
    } while (Next(at, outer));
    return OkStatus();
  }

  [[nodiscard]] Error Missing() const {
    std::string names;
    for (std::size_t i = 0; i < std::min(missing_.size(), kMostNamed); ++i) names += (i == 0 ? "`" : ", `") + Printable(missing_[i]) + "`";
    return MakeError(ErrorCode::kIncomplete, "chunks of a zarr array are missing, and what they held is not made up")
        .WithExpected("chunk " + names)
        .WithFound(missing_.size() > kMostNamed ? "no such chunks, and more are missing" : "no such chunks")
        .WithHint("copy the missing files from where the checkpoint was saved");
  }

  const ArrayMetadata& array_;
  const FindObject& find_;
  std::int64_t chunk_bytes_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<std::string> missing_;
};

}  // namespace

Result<std::vector<Chunk>> PlaceChunks(const ArrayMetadata& array, const FindObject& find) { return Placer(array, find).Run(); }

}  // namespace crossdock::formats::zarr
