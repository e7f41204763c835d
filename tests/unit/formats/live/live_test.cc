// SPDX-License-Identifier: Apache-2.0
#include "formats/live/live.h"

#include "result_matchers.h"

namespace crossdock::formats::live {
namespace {

using ::testing::HasSubstr;

Entry Whole(std::string name, DType dtype, Shape shape) {
  Entry entry{std::move(name), Slot::kParam, dtype, std::move(shape), {}};
  entry.chunks.push_back({Box::Whole(entry.shape), -1, {}, ChunkEncoding::kRaw, 3});
  return entry;
}

Catalog Two() {
  Catalog catalog;
  catalog.entries = {Whole("a", DType::kBF16, {4, 3}), Whole("b", DType::kF32, {4})};
  Entry& b = catalog.entries[1];
  b.chunks = {b.chunks[0], b.chunks[0]};
  b.chunks[0].box.sizes[0] = 1;
  b.chunks[1].box = {{1}, {3}};
  return catalog;
}

TEST(Live, GivesEachChunkABuffer) {
  const auto writer = MakeLiveWriter();
  ASSERT_OK_AND_ASSIGN(const Placement placed, writer->LayOut(Two()));
  EXPECT_FALSE(placed.wants_crc32);
  EXPECT_TRUE(placed.frames.empty());
  ASSERT_EQ(placed.catalog.files.size(), 3U);
  EXPECT_EQ(placed.catalog.files[0].path, "a");
  EXPECT_EQ(placed.catalog.files[1].path, "b@0");
  EXPECT_EQ(placed.catalog.files[2].path, "b@1");
  EXPECT_EQ(placed.catalog.files[0].identity, (FileIdentity{24, 0, 0}));
  EXPECT_EQ(placed.catalog.entries[1].chunks[1].file, 2);
  EXPECT_EQ(placed.catalog.entries[1].chunks[1].bytes, (ByteRange{0, 12}));
}

TEST(Live, ReadsWhatWasPlaced) {
  Catalog catalog = Two();
  catalog.objects["mp_rank_00/model_optim_rng.pt"] = Value("kept");
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenLive(std::move(catalog)));
  EXPECT_EQ(reader->catalog().files.size(), 3U);
  EXPECT_EQ(*reader->catalog().objects.at("mp_rank_00/model_optim_rng.pt").as_string(), "kept");
  ASSERT_OK_AND_ASSIGN(const ByteRange range, reader->Locate(1, 0));
  EXPECT_EQ(range, (ByteRange{0, 4}));
}

TEST(Live, RefusesElementsWithinBytes) {
  Catalog catalog;
  catalog.entries = {Whole("a", DType::kF4, {4, 4})};
  EXPECT_THAT(PlaceBuffers(std::move(catalog)), IsError(ErrorCode::kUnsupported, HasSubstr("not handed over")));
}

}  // namespace
}  // namespace crossdock::formats::live
