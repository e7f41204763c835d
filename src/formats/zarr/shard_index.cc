// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/shard_index.h"

#include <limits>

#include "base/checked_math.h"
#include "base/crc32c.h"
#include "base/endian.h"

namespace crossdock::formats::zarr {
namespace {

constexpr std::int64_t kRow = 16;
constexpr std::int64_t kSum = 4;
constexpr std::uint64_t kNotStored = std::numeric_limits<std::uint64_t>::max();

}  // namespace

std::int64_t ShardIndexBytes(const Sharding& sharding, std::int64_t chunks) {
  return kRow * chunks + (sharding.index_checksum ? kSum : 0);
}

Result<std::vector<std::optional<ByteRange>>> ReadShardIndex(const Sharding& sharding, std::int64_t chunks,
                                                             const StoredBytes& object) {
  const std::int64_t bytes = ShardIndexBytes(sharding, chunks);
  if (object.size() < bytes) {
    return MakeError(ErrorCode::kCorrupt, "a shard is too small for its index")
        .WithExpected("at least " + std::to_string(bytes) + " bytes")
        .WithFound(std::to_string(object.size()));
  }
  std::vector<std::byte> index(static_cast<std::size_t>(bytes));
  CROSSDOCK_RETURN_IF_ERROR(object.ReadAt(sharding.index_at_end ? object.size() - bytes : 0, index));
  const auto rows = std::span(index).first(static_cast<std::size_t>(kRow * chunks));
  if (sharding.index_checksum && Crc32c(0, rows) != LoadLittle<std::uint32_t>(index.data() + rows.size())) {
    return MakeError(ErrorCode::kCorrupt, "the CRC-32C of a shard's index is another than its bytes'");
  }
  std::vector<std::optional<ByteRange>> out;
  out.reserve(static_cast<std::size_t>(chunks));
  for (std::size_t at = 0; at < rows.size(); at += kRow) {
    const auto offset = LoadLittle<std::uint64_t>(rows.data() + at);
    const auto length = LoadLittle<std::uint64_t>(rows.data() + at + 8);
    if (offset == kNotStored && length == kNotStored) {
      out.push_back(std::nullopt);
      continue;
    }
    const auto from = CheckedFromU64(offset);
    const auto size = CheckedFromU64(length);
    const auto end = from && size ? CheckedAdd(*from, *size) : std::nullopt;
    if (!end || *end > object.size()) {
      return MakeError(ErrorCode::kCorrupt, "the index of a shard names bytes beyond its end")
          .WithExpected("at most " + std::to_string(object.size()) + " bytes")
          .WithFound(std::to_string(length) + " bytes at " + std::to_string(offset));
    }
    out.push_back(ByteRange{*from, *size});
  }
  return out;
}

Result<ByteRange> LocateInLoneShard(const Sharding& sharding, const io::ReadFile& file, ByteRange elements) {
  const std::int64_t index = ShardIndexBytes(sharding, 1);
  const ByteRange object{elements.offset - (sharding.index_at_end ? 0 : index), elements.length + index};
  CROSSDOCK_ASSIGN_OR_RETURN(const auto places, ReadShardIndex(sharding, 1, StoredBytes(file, object)));
  if (!places[0] || places[0]->length != elements.length) {
    return MakeError(ErrorCode::kCorrupt, "the chunk of a shard is not as large as its metadata says")
        .WithExpected(std::to_string(elements.length) + " bytes")
        .WithFound(places[0] ? std::to_string(places[0]->length) : "none");
  }
  return ByteRange{object.offset + places[0]->offset, elements.length};
}

}  // namespace crossdock::formats::zarr
