// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/chunk_grid.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "formats/zarr/chunk_stream.h"
#include "formats/zarr/shard_index.h"

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
  Placer(const ArrayMetadata& array, const ObjectStore& store) : array_(array), store_(store) {}

  Result<PlacedChunks> Run() {
    if (CheckedCount(array_.shape) == 0) return std::move(out_);
    CROSSDOCK_ASSIGN_OR_RETURN(const Dims grid, Grid());
    CROSSDOCK_ASSIGN_OR_RETURN(unit_bytes_, ByteSize(array_.dtype, array_.unit_shape()));
    Dims position = Dims::Filled(grid.size(), 0);
    do {
      CROSSDOCK_RETURN_IF_ERROR(One(position));
    } while (missing_.size() <= kMostNamed && Next(position, grid));
    if (missing_.empty()) return std::move(out_);
    return Missing();
  }

 private:
  /// Objects along each axis; with their inner chunks they are no more than kMostPieces.
  Result<Dims> Grid() {
    Dims grid;
    std::int64_t units = 1;
    for (std::size_t axis = 0; axis < array_.shape.size(); ++axis) {
      grid.push_back((array_.shape[axis] - 1) / array_.chunk_shape[axis] + 1);
      const std::int64_t inner = array_.chunk_shape[axis] / array_.unit_shape()[axis];
      inner_.push_back(inner);
      const std::optional<std::int64_t> all = CheckedMul(grid.back(), inner);
      const std::optional<std::int64_t> product = all ? CheckedMul(units, *all) : std::nullopt;
      if (!product || *product > kMostPieces) return TooMany(array_);
      units = *product;
    }
    return grid;
  }

  Status One(const Dims& position) {
    const std::string key = ChunkKey(array_, position);
    Dims origin = position;
    for (std::size_t axis = 0; axis < origin.size(); ++axis) origin[axis] *= array_.chunk_shape[axis];
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Stored> stored, store_.find(key));
    if (stored && CheckedCount(inner_) > 1) return TakeApart(key, origin, *stored);
    if (stored) return Unit(key, origin, *stored, array_.sharding.has_value());
    if (!store_.zeros || !array_.zero_fill) {
      missing_.push_back(key);
      return OkStatus();
    }
    Dims inner = Dims::Filled(inner_.size(), 0);
    do {
      Zeros(UnitOrigin(origin, inner));
    } while (Next(inner, inner_));
    return OkStatus();
  }

  [[nodiscard]] Dims UnitOrigin(const Dims& origin, const Dims& inner) const {
    Dims out = origin;
    for (std::size_t axis = 0; axis < out.size(); ++axis) out[axis] += inner[axis] * array_.unit_shape()[axis];
    return out;
  }

  /// What of a unit at `origin` lies inside the array; nothing of one that lies wholly beyond.
  [[nodiscard]] std::optional<Box> Inside(const Dims& origin) const {
    Box inside{origin, {}};
    for (std::size_t axis = 0; axis < origin.size(); ++axis) {
      if (origin[axis] >= array_.shape[axis]) return std::nullopt;
      inside.sizes.push_back(std::min(array_.unit_shape()[axis], array_.shape[axis] - origin[axis]));
    }
    return inside;
  }

  void Zeros(const Dims& origin) {
    if (const auto inside = Inside(origin)) {
      out_.chunks.push_back({*inside, store_.zeros->file, {store_.zeros->bytes.offset, 0}, ChunkEncoding::kEncoded, 0});
    }
  }

  /// A shard of several inner chunks: its index says where each lies.
  Status TakeApart(const std::string& key, const Dims& origin, const Stored& stored) {
    std::shared_ptr<const io::ReadFile> file;
    if (!stored.inlined) {
      CROSSDOCK_ASSIGN_OR_RETURN(file, store_.open(stored.file));
    }
    const StoredBytes object = stored.inlined ? StoredBytes(*stored.inlined) : StoredBytes(*file, stored.bytes);
    auto read = ReadShardIndex(*array_.sharding, CheckedCount(inner_), object);
    if (!read) return std::move(read).error().WithContext("reading chunk `" + Printable(key) + "`");
    Dims inner = Dims::Filled(inner_.size(), 0);
    std::size_t number = 0;
    do {
      const std::optional<ByteRange> place = (*read)[number++];
      const Dims at = UnitOrigin(origin, inner);
      if (!Inside(at)) continue;
      if (!place) {
        if (store_.zeros && array_.zero_fill) {
          Zeros(at);
        } else {
          missing_.push_back(key);
        }
        continue;
      }
      Stored part = stored;
      if (stored.inlined) {
        part.inlined = stored.inlined->substr(static_cast<std::size_t>(place->offset), static_cast<std::size_t>(place->length));
      } else {
        part.bytes = {stored.bytes.offset + place->offset, place->length};
      }
      CROSSDOCK_RETURN_IF_ERROR(Unit(key, at, part, false));
    } while (Next(inner, inner_));
    return OkStatus();
  }

  /// One encoded or plain unit; with `index` it is a whole shard.
  Status Unit(const std::string& key, const Dims& origin, const Stored& stored, bool index) {
    const std::optional<Box> inside = Inside(origin);
    CROSSDOCK_CHECK(inside.has_value());  // an object's own origin lies in the grid, and others were looked at
    const std::int64_t index_bytes = index ? ShardIndexBytes(*array_.sharding, 1) : 0;
    const std::int64_t held = stored.inlined ? static_cast<std::int64_t>(stored.inlined->size()) : stored.bytes.length;
    const bool possible = array_.unit_codecs().empty() ? held == unit_bytes_ + index_bytes
                                                       : held > index_bytes && Plausible(held - index_bytes, unit_bytes_);
    // A whole shard that says to hold nothing is no more than its index.
    const bool hollow = index && held == index_bytes && array_.zero_fill && store_.zeros;
    if (!possible && !hollow) {
      return MakeError(ErrorCode::kCorrupt, "a chunk of a zarr array is not as large as its metadata says")
          .WithExpected((array_.unit_codecs().empty() ? "" : "what may decode to ") + std::to_string(unit_bytes_ + index_bytes) + " bytes in `" + Printable(key) + "`")
          .WithFound(std::to_string(held));
    }
    const bool whole = inside->sizes == array_.unit_shape();
    if (array_.plain() && !stored.inlined && !hollow && (whole || !index)) {
      const std::int64_t first = index && !array_.sharding->index_at_end ? index_bytes : 0;
      return Cut(*inside, {stored.file, {stored.bytes.offset + first, unit_bytes_}});
    }
    if (stored.inlined) out_.inlined[static_cast<std::int32_t>(out_.chunks.size())] = *stored.inlined;
    out_.chunks.push_back({*inside, stored.file, stored.bytes, ChunkEncoding::kEncoded, 0});
    return OkStatus();
  }

  /// The part of a plain chunk that lies inside the array, as contiguous pieces.
  Status Cut(const Box& inside, const Stored& stored) {
    const Shape& whole = array_.unit_shape();
    const std::size_t rank = whole.size();
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
    if (pieces > kMostPieces - static_cast<std::int64_t>(out_.chunks.size())) return TooMany(array_);
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
      out_.chunks.push_back({box, stored.file, {stored.bytes.offset + first * element, length}, ChunkEncoding::kRaw, 0});
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
  const ObjectStore& store_;
  Dims inner_;  ///< inner chunks of a shard along each axis
  std::int64_t unit_bytes_ = 0;
  PlacedChunks out_;
  std::vector<std::string> missing_;
};

}  // namespace

Result<PlacedChunks> PlaceChunks(const ArrayMetadata& array, const ObjectStore& store) { return Placer(array, store).Run(); }

Result<std::vector<Chunk>> PlaceChunks(const ArrayMetadata& array, const FindObject& find) {
  CROSSDOCK_CHECK(array.plain() && !array.sharding);
  CROSSDOCK_ASSIGN_OR_RETURN(PlacedChunks placed, Placer(array, {find, {}, {}}).Run());
  CROSSDOCK_CHECK(placed.inlined.empty());
  return std::move(placed.chunks);
}

}  // namespace crossdock::formats::zarr
