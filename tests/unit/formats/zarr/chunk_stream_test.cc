// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/chunk_stream.h"

#include <numeric>

#include "formats/zarr/chunk_grid.h"
#include "formats/zarr/shard_index.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/zarr/encode.h"

namespace crossdock::formats::zarr {
namespace {

using ::testing::HasSubstr;

std::string Numbers(std::int64_t count) {
  std::string out(static_cast<std::size_t>(count), '\0');
  std::iota(out.begin(), out.end(), '\1');
  return out;
}

Result<std::string> Elements(const ArrayMetadata& array, const Box& box, StoredBytes stored, bool zeros = false, std::size_t piece = 5) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto stream, OpenChunk(array, box, stored, zeros));
  std::string out(static_cast<std::size_t>(box.count() * ElementSize(array.dtype)), '\0');
  for (std::size_t at = 0; at < out.size(); at += piece) {
    CROSSDOCK_RETURN_IF_ERROR(stream->Read(std::as_writable_bytes(std::span(out).subspan(at, std::min(piece, out.size() - at)))));
  }
  return out;
}

TEST(ZarrChunkStream, GivesTheWholeOfAChunk) {
  const ArrayMetadata array{{4, 6}, {4, 6}, DType::kU8, '.', false, {Codec::kZstd}};
  ASSERT_OK_AND_ASSIGN(const std::string out, Elements(array, Box::Whole({4, 6}), StoredBytes(Zstd(Numbers(24)))));
  EXPECT_EQ(out, Numbers(24));
}

TEST(ZarrChunkStream, LeavesPaddingOut) {
  // A unit of 3 x 4 x 2 of which 2 x 3 x 2 lie inside.
  const ArrayMetadata array{{2, 3, 2}, {3, 4, 2}, DType::kU8, '.', false, {Codec::kGzip}};
  ASSERT_OK_AND_ASSIGN(const std::string out, Elements(array, Box::Whole({2, 3, 2}), StoredBytes(Gzip(Numbers(24)))));
  EXPECT_EQ(out, Numbers(24).substr(0, 6) + Numbers(24).substr(8, 6));
}

TEST(ZarrChunkStream, WidensInt4) {
  const ArrayMetadata array{{4}, {4}, DType::kI8, '.', false, {}, std::nullopt, true};
  ASSERT_OK_AND_ASSIGN(const std::string out, Elements(array, Box::Whole({4}), StoredBytes(std::string("\x07\x08\x0F\x01"))));
  EXPECT_EQ(out, "\x07\xF8\xFF\x01");
}

TEST(ZarrChunkStream, TooFewAndTooManyBytesAreCorrupt) {
  const ArrayMetadata array{{24}, {24}, DType::kU8, '.', false, {Codec::kZstd}};
  EXPECT_THAT(Elements(array, Box::Whole({24}), StoredBytes(Zstd(Numbers(23)))), IsError(ErrorCode::kCorrupt, HasSubstr("too few")));
  EXPECT_THAT(Elements(array, Box::Whole({24}), StoredBytes(Zstd(Numbers(25)))), IsError(ErrorCode::kCorrupt, HasSubstr("more bytes")));
}

ArrayMetadata Sharded(Shape shape, Shape outer, Shape inner, Codecs codecs, bool at_end = true) {
  ArrayMetadata array{std::move(shape), std::move(outer), DType::kU8, '/', true};
  array.sharding = Sharding{std::move(inner), std::move(codecs), true, at_end};
  array.zero_fill = true;
  return array;
}

TEST(ZarrChunkStream, FindsTheChunkOfALoneShardAtEitherEnd) {
  const std::string data = Zstd(Numbers(24));
  const std::string end = data + WithCrc32c(IndexOf({0, data.size()}));
  ASSERT_OK_AND_ASSIGN(const std::string a, Elements(Sharded({24}, {24}, {24}, {Codec::kZstd}), Box::Whole({24}), StoredBytes(end)));
  EXPECT_EQ(a, Numbers(24));
  const std::string start = WithCrc32c(IndexOf({20, data.size()})) + data;
  ASSERT_OK_AND_ASSIGN(const std::string b, Elements(Sharded({24}, {24}, {24}, {Codec::kZstd}, false), Box::Whole({24}), StoredBytes(start)));
  EXPECT_EQ(b, Numbers(24));
}

TEST(ZarrChunkStream, AHollowShardIsZerosOnlyWhereThatIsSo) {
  const std::string hollow = WithCrc32c(IndexOf({~0ULL, ~0ULL}));
  const ArrayMetadata array = Sharded({4}, {4}, {4}, {Codec::kZstd});
  ASSERT_OK_AND_ASSIGN(const std::string out, Elements(array, Box::Whole({4}), StoredBytes(hollow), true));
  EXPECT_EQ(out, std::string(4, '\0'));
  EXPECT_THAT(Elements(array, Box::Whole({4}), StoredBytes(hollow), false), IsError(ErrorCode::kIncomplete, HasSubstr("not made up")));
}

TEST(ZarrShardIndex, DamageIsFound) {
  const Sharding sharding{{4}, {}, true, true};
  const std::string good = "abcd" + WithCrc32c(IndexOf({0, 4}));
  EXPECT_THAT(ReadShardIndex(sharding, 1, StoredBytes(good)), IsOk());
  EXPECT_THAT(ReadShardIndex(sharding, 2, StoredBytes(good)), IsError(ErrorCode::kCorrupt, HasSubstr("too small")));
  std::string flipped = good;
  flipped[4] ^= 1;
  EXPECT_THAT(ReadShardIndex(sharding, 1, StoredBytes(flipped)), IsError(ErrorCode::kCorrupt, HasSubstr("CRC-32C")));
  for (const auto& numbers : {IndexOf({0, 25}), IndexOf({25, 0}), IndexOf({~0ULL, 4}), IndexOf({1, ~0ULL - 1}), IndexOf({~0ULL >> 1U, ~0ULL >> 1U})}) {
    EXPECT_THAT(ReadShardIndex(sharding, 1, StoredBytes("abcd" + WithCrc32c(numbers))), IsError(ErrorCode::kCorrupt, HasSubstr("beyond its end")));
  }
}

/// A directory of objects in memory, one file each.
class Objects {
 public:
  Objects() { EXPECT_THAT(storage_.MakeDir("/o"), IsOk()); }
  void Put(const std::string& key, const std::string& bytes, bool inlined = false) {
    const std::string name = std::to_string(stored_.size());
    EXPECT_THAT(io::WriteSmallFile(storage_, "/o/" + name, bytes), IsOk());
    Stored stored{static_cast<std::int32_t>(stored_.size()), {0, static_cast<std::int64_t>(bytes.size())}};
    if (inlined) stored.inlined = bytes;
    stored_.emplace(key, stored);
  }
  ObjectStore Store(bool zeros = false) {
    ObjectStore store;
    store.find = [this](const std::string& key) -> Result<std::optional<Stored>> {
      const auto at = stored_.find(key);
      return at == stored_.end() ? std::nullopt : std::optional(at->second);
    };
    store.open = [this](std::int32_t file) -> Result<std::shared_ptr<const io::ReadFile>> {
      CROSSDOCK_ASSIGN_OR_RETURN(auto opened, storage_.OpenRead("/o/" + std::to_string(file)));
      return std::shared_ptr<const io::ReadFile>(std::move(opened));
    };
    if (zeros) store.zeros = Stored{0, {0, 0}};
    return store;
  }
  /// The array, put together from what PlaceChunks says.
  Result<std::string> Assemble(const ArrayMetadata& array, bool zeros = false) {
    CROSSDOCK_ASSIGN_OR_RETURN(const PlacedChunks placed, PlaceChunks(array, Store(zeros)));
    std::string out(static_cast<std::size_t>(CheckedCount(array.shape)), '?');
    std::vector<Box> boxes;
    for (std::size_t c = 0; c < placed.chunks.size(); ++c) {
      const Chunk& chunk = placed.chunks[c];
      boxes.push_back(chunk.box);
      CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.OpenRead("/o/" + std::to_string(chunk.file)));
      std::string bytes(static_cast<std::size_t>(chunk.box.count()), '\0');
      const auto inlined = placed.inlined.find(static_cast<std::int32_t>(c));
      if (chunk.encoding == ChunkEncoding::kRaw) {
        CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(chunk.bytes.offset, std::as_writable_bytes(std::span(bytes))));
      } else {
        const StoredBytes stored = inlined != placed.inlined.end() ? StoredBytes(inlined->second) : StoredBytes(*file, chunk.bytes);
        CROSSDOCK_ASSIGN_OR_RETURN(bytes, Elements(array, chunk.box, stored, zeros));
      }
      const Dims strides = RowMajorStrides(array.shape);
      for (std::int64_t i = 0; i < chunk.box.count(); ++i) {
        std::int64_t rest = i, at = 0;
        for (std::size_t d = chunk.box.rank(); d-- > 0;) {
          at += (chunk.box.offsets[d] + rest % chunk.box.sizes[d]) * strides[d];
          rest /= chunk.box.sizes[d];
        }
        out[static_cast<std::size_t>(at)] = bytes[static_cast<std::size_t>(i)];
      }
    }
    CROSSDOCK_RETURN_IF_ERROR(CheckCover(array.shape, boxes));
    return out;
  }

 private:
  io::MemoryStorage storage_;
  std::map<std::string, Stored> stored_;
};

TEST(ZarrChunks, ShardsOfSeveralChunksAreTakenApart) {
  // 3 x 4 in shards of 2 x 4, inner chunks of 1 x 2: the last row of the second shard lies beyond.
  for (const bool compressed : {false, true}) {
    for (const bool inlined : {false, true}) {
      const ArrayMetadata array = Sharded({3, 4}, {2, 4}, {1, 2}, compressed ? Codecs{Codec::kZstd} : Codecs{});
      Objects objects;
      const auto shard = [&](const std::vector<std::string>& parts) {
        std::string bytes = "junk";
        std::string index;
        for (const std::string& part : parts) {
          const std::string stored = compressed ? Zstd(part) : part;
          index += part.empty() ? IndexOf({~0ULL, ~0ULL}) : IndexOf({bytes.size(), stored.size()});
          if (!part.empty()) bytes += stored;
        }
        return bytes + WithCrc32c(index);
      };
      objects.Put("c/0/0", shard({"ab", "cd", "", "gh"}), inlined);
      objects.Put("c/1/0", shard({"ij", "kl", "", ""}), inlined);
      ASSERT_OK_AND_ASSIGN(const std::string out, objects.Assemble(array, true));
      EXPECT_EQ(out, std::string("abcd\0\0ghijkl", 12));
      EXPECT_THAT(objects.Assemble(array, false), IsError(ErrorCode::kIncomplete, HasSubstr("`c/0/0`")));
    }
  }
}

TEST(ZarrChunks, MissingObjectsAreZerosOnlyWhereTheStoreSaysSo) {
  ArrayMetadata array{{4}, {2}, DType::kU8, '.', false, {Codec::kZstd}};
  array.zero_fill = true;
  Objects objects;
  objects.Put("1", Zstd("cd"));
  ASSERT_OK_AND_ASSIGN(const std::string out, objects.Assemble(array, true));
  EXPECT_EQ(out, std::string("\0\0cd", 4));
  EXPECT_THAT(objects.Assemble(array, false), IsError(ErrorCode::kIncomplete, HasSubstr("`0`")));
  array.zero_fill = false;
  EXPECT_THAT(objects.Assemble(array, true), IsError(ErrorCode::kIncomplete, HasSubstr("`0`")));
}

TEST(ZarrChunks, APlainLoneShardIsReadInPlace) {
  const ArrayMetadata array = Sharded({8}, {4}, {4}, {});
  Objects objects;
  objects.Put("c/0", "abcd" + WithCrc32c(IndexOf({0, 4})));
  objects.Put("c/1", "efgh" + WithCrc32c(IndexOf({0, 4})));
  ASSERT_OK_AND_ASSIGN(const PlacedChunks placed, PlaceChunks(array, objects.Store()));
  ASSERT_EQ(placed.chunks.size(), 2U);
  EXPECT_EQ(placed.chunks[1].encoding, ChunkEncoding::kRaw);
  EXPECT_EQ(placed.chunks[1].bytes, (ByteRange{0, 4}));
  ASSERT_OK_AND_ASSIGN(const auto file, objects.Store().open(1));
  ASSERT_OK_AND_ASSIGN(const ByteRange range, LocateInLoneShard(*array.sharding, *file, placed.chunks[1].bytes));
  EXPECT_EQ(range, (ByteRange{0, 4}));
}

TEST(ZarrChunks, ALoneShardWhoseIndexDisagreesIsCorrupt) {
  const ArrayMetadata array = Sharded({4}, {4}, {4}, {});
  Objects objects;
  objects.Put("c/0", "abcd" + WithCrc32c(IndexOf({0, 3})));
  ASSERT_OK_AND_ASSIGN(const auto file, objects.Store().open(0));
  EXPECT_THAT(LocateInLoneShard(*array.sharding, *file, {0, 4}), IsError(ErrorCode::kCorrupt, HasSubstr("not as large")));
}

TEST(ZarrChunks, SizesThatNoCodecReachesAreRefused) {
  ArrayMetadata array{{std::int64_t{1} << 40U}, {std::int64_t{1} << 40U}, DType::kU8, '.', false, {Codec::kZstd}};
  Objects objects;
  objects.Put("0", std::string(1000, 'x'));
  EXPECT_THAT(PlaceChunks(array, objects.Store()), IsError(ErrorCode::kCorrupt, HasSubstr("what may decode to 1099511627776 bytes")));
  Objects empty;
  empty.Put("0", "");
  array.shape = array.chunk_shape = {4};
  EXPECT_THAT(PlaceChunks(array, empty.Store()), IsError(ErrorCode::kCorrupt, HasSubstr("not as large")));
}

TEST(ZarrChunks, ElementsOfManyPiecesComeFromUnitsAtTheEdge) {
  const ArrayMetadata array{{3, 5}, {2, 3}, DType::kU8, '.', false, {Codec::kZstd}};
  Objects objects;
  objects.Put("0.0", Zstd("abcfgh"));
  objects.Put("0.1", Zstd("de?ij?"));
  objects.Put("1.0", Zstd("klm???"));
  objects.Put("1.1", Zstd("no????"));
  ASSERT_OK_AND_ASSIGN(const std::string out, objects.Assemble(array));
  EXPECT_EQ(out, "abcdefghijklmno");
}

}  // namespace
}  // namespace crossdock::formats::zarr
