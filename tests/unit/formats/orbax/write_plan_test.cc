// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/write_plan.h"

#include "formats/zarr/array_metadata.h"
#include "formats/zarr/zarr_json.h"
#include "result_matchers.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::HasSubstr;

Entry MakeEntry(Shape shape, std::vector<Box> boxes, DType dtype = DType::kBF16) {
  Entry entry{"w", Slot::kParam, dtype, std::move(shape), {}};
  for (Box& box : boxes) entry.chunks.push_back({std::move(box), -1, {}, ChunkEncoding::kRaw, 0});
  return entry;
}

TEST(OrbaxWriteGrid, ChunksMayComeInAnyOrder) {
  const Entry entry = MakeEntry({4, 6}, {{{2, 3}, {2, 3}}, {{0, 0}, {2, 3}}, {{0, 3}, {2, 3}}, {{2, 0}, {2, 3}}});
  ASSERT_OK_AND_ASSIGN(const WriteGrid grid, GridOf(entry));
  EXPECT_EQ(grid.chunk_shape, (Shape{2, 3}));
  EXPECT_EQ(grid.object_bytes, 12);
  EXPECT_EQ(KeyOf(entry.chunks[0], grid, true), "c/1/1");
  EXPECT_EQ(KeyOf(entry.chunks[0], grid, false), "1.1");
}

TEST(OrbaxWriteGrid, ScalarsHaveOneChunk) {
  const Entry entry = MakeEntry({}, {Box::Whole({})}, DType::kI32);
  ASSERT_OK_AND_ASSIGN(const WriteGrid grid, GridOf(entry));
  EXPECT_EQ(KeyOf(entry.chunks[0], grid, true), "c");
  EXPECT_EQ(KeyOf(entry.chunks[0], grid, false), "0");
}

TEST(OrbaxWriteGrid, TheEdgeMayBeCutWhereTheRestLiesBehindIt) {
  ASSERT_OK_AND_ASSIGN(const WriteGrid rows, GridOf(MakeEntry({5, 4}, {{{0, 0}, {3, 4}}, {{3, 0}, {2, 4}}})));
  EXPECT_EQ(rows.object_bytes, 24);
  EXPECT_THAT(GridOf(MakeEntry({1, 5, 4}, {{{0, 0, 0}, {1, 3, 4}}, {{0, 3, 0}, {1, 2, 4}}})), IsOk());
  EXPECT_THAT(GridOf(MakeEntry({4, 5}, {{{0, 0}, {4, 3}}, {{0, 3}, {4, 2}}})), IsError(ErrorCode::kUnsupported, HasSubstr("within its rows")));
  EXPECT_THAT(GridOf(MakeEntry({2, 5, 4}, {{{0, 0, 0}, {2, 3, 4}}, {{0, 3, 0}, {2, 2, 4}}})), IsError(ErrorCode::kUnsupported, HasSubstr("within its rows")));
}

TEST(OrbaxWriteGrid, OtherCutsAreRefused) {
  EXPECT_THAT(GridOf(MakeEntry({4}, {{{0}, {1}}, {{1}, {3}}})), IsError(ErrorCode::kUnsupported, HasSubstr("regular grid")));
  EXPECT_THAT(GridOf(MakeEntry({4}, {{{0}, {3}}, {{3}, {1}}, {{0}, {3}}})), IsError(ErrorCode::kUnsupported, HasSubstr("3 chunks")));
  EXPECT_THAT(GridOf(MakeEntry({4}, {{{1}, {3}}})), IsError(ErrorCode::kUnsupported, HasSubstr("no chunk at its beginning")));
  EXPECT_THAT(GridOf(MakeEntry({0, 4}, {{{0, 0}, {0, 4}}})), IsError(ErrorCode::kUnsupported, HasSubstr("without elements")));
}

TEST(OrbaxArrayJson, IsReadAsItWasMeant) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32, DType::kI8, DType::kU8, DType::kU32, DType::kBool, DType::kF8E4M3,
                            DType::kF8E5M2, DType::kC64}) {
    const Entry entry = MakeEntry({4, 6}, {{{0, 0}, {2, 6}}, {{2, 0}, {2, 6}}}, dtype);
    ASSERT_OK_AND_ASSIGN(const WriteGrid grid, GridOf(entry));
    for (const bool zarr3 : {true, false}) {
      ASSERT_OK_AND_ASSIGN(const std::string json, ArrayJson(entry, grid, zarr3));
      ASSERT_OK_AND_ASSIGN(const zarr::ArrayMetadata array, zarr3 ? zarr::ParseZarrJson(json) : zarr::ParseZarray(json));
      EXPECT_EQ(array.dtype, dtype) << json;
      EXPECT_EQ(array.shape, entry.shape);
      EXPECT_EQ(array.chunk_shape, grid.chunk_shape);
      EXPECT_TRUE(array.plain());
      EXPECT_EQ(array.prefixed, zarr3);
    }
  }
  const Entry entry = MakeEntry({4, 6}, {{{0, 0}, {2, 6}}, {{2, 0}, {2, 6}}}, DType::kBF16);
  ASSERT_OK_AND_ASSIGN(const WriteGrid cut, GridOf(entry));
  for (const bool zarr3 : {true, false}) {
    ASSERT_OK_AND_ASSIGN(const std::string json, ArrayJson(entry, cut, zarr3, 3));
    EXPECT_THAT(json, HasSubstr(zarr3 ? R"({"configuration":{"checksum":false,"level":3},"name":"zstd"})" : R"("compressor":{"id":"zstd","level":3})"));
    ASSERT_OK_AND_ASSIGN(const zarr::ArrayMetadata array, zarr3 ? zarr::ParseZarrJson(json) : zarr::ParseZarray(json));
    EXPECT_EQ(array.codecs, zarr::Codecs{zarr::Codec::kZstd});
  }
  const Entry odd = MakeEntry({4}, {{{0}, {4}}}, DType::kF8E8M0);
  ASSERT_OK_AND_ASSIGN(const WriteGrid grid, GridOf(odd));
  EXPECT_THAT(ArrayJson(odd, grid, true), IsError(ErrorCode::kUnsupported, HasSubstr("no name for F8_E8M0")));
}

}  // namespace
}  // namespace crossdock::formats::orbax
