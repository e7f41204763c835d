// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/zarr_json.h"
#include "formats/zarr/dtype_names.h"

#include "result_matchers.h"

namespace crossdock::formats::zarr {
namespace {

using ::testing::HasSubstr;

/// As Orbax 0.12.8 writes it (TensorStore 0.1.86), with one text in the place of another.
std::string Json(const std::string& from = "", const std::string& to = "") {
  std::string text =
      R"({"chunk_grid":{"configuration":{"chunk_shape":[4,4]},"name":"regular"},"chunk_key_encoding":{"name":"default"},"codecs":[{"configuration":{"chunk_shape":[4,4],"codecs":[{"configuration":{"endian":"little"},"name":"bytes"},{"configuration":{"checksum":false,"level":3},"name":"zstd"}],"index_codecs":[{"configuration":{"endian":"little"},"name":"bytes"},{"name":"crc32c"}]},"name":"sharding_indexed"}],"data_type":"bfloat16","fill_value":0.0,"node_type":"array","shape":[8,6],"zarr_format":3})";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

/// Without shards; `codecs` is the list.
std::string Plain(const std::string& codecs, const std::string& type = "float32") {
  return R"({"chunk_grid":{"configuration":{"chunk_shape":[4,4]},"name":"regular"},"chunk_key_encoding":{"name":"default"},"codecs":)" + codecs +
         R"(,"data_type":")" + type + R"(","fill_value":0,"node_type":"array","shape":[8,6],"zarr_format":3})";
}

TEST(ZarrJson, ReadsWhatOrbaxWrote) {
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarrJson(Json()));
  EXPECT_EQ(array.shape, (Shape{8, 6}));
  EXPECT_EQ(array.chunk_shape, (Shape{4, 4}));
  EXPECT_EQ(array.dtype, DType::kBF16);
  ASSERT_TRUE(array.sharding.has_value());
  EXPECT_EQ(array.sharding->inner, (Shape{4, 4}));
  EXPECT_EQ(array.unit_codecs(), Codecs{Codec::kZstd});
  EXPECT_TRUE(array.sharding->index_checksum);
  EXPECT_TRUE(array.sharding->index_at_end);
  EXPECT_TRUE(array.zero_fill);
  EXPECT_FALSE(array.plain());
  EXPECT_EQ(ChunkKey(array, {1, 0}), "c/1/0");
}

TEST(ZarrJson, NamesTheChunksOfEachEncoding) {
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata v2, ParseZarrJson(Json(R"({"name":"default"})", R"({"name":"v2"})")));
  EXPECT_EQ(ChunkKey(v2, {1, 0}), "1.0");
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata dots, ParseZarrJson(Json(R"({"name":"default"})", R"({"name":"default","configuration":{"separator":"."}})")));
  EXPECT_EQ(ChunkKey(dots, {1, 0}), "c.1.0");
  EXPECT_EQ(ChunkKey(dots, {}), "c");
}

TEST(ZarrJson, ReadsListsOfCodecs) {
  struct {
    const char* codecs;
    Codecs wanted;
  } const cases[] = {
      {R"([{"name":"bytes","configuration":{"endian":"little"}}])", {}},
      {R"([{"name":"transpose","configuration":{"order":[0,1]}},{"name":"bytes","configuration":{"endian":"little"}}])", {}},
      {R"([{"name":"bytes","configuration":{"endian":"little"}},{"name":"gzip","configuration":{"level":1}},{"name":"crc32c"}])", {Codec::kGzip, Codec::kCrc32c}},
      {R"([{"name":"bytes","configuration":{"endian":"little"}},{"name":"blosc","configuration":{"cname":"lz4"}}])", {Codec::kBlosc}},
  };
  for (const auto& c : cases) {
    ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarrJson(Plain(c.codecs)));
    EXPECT_EQ(array.codecs, c.wanted) << c.codecs;
    EXPECT_FALSE(array.sharding.has_value());
  }
}

TEST(ZarrJson, Int4IsReadAsBytes) {
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarrJson(Plain(R"([{"name":"bytes"}])", "int4")));
  EXPECT_EQ(array.dtype, DType::kI8);
  EXPECT_TRUE(array.nibbles);
  EXPECT_FALSE(array.plain());
}

TEST(ZarrJson, OtherFillValuesAreNotMadeUp) {
  for (const char* fill : {"1.0", "-0.0", "\"NaN\"", "true"}) {
    ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarrJson(Json("\"fill_value\":0.0", std::string("\"fill_value\":") + fill)));
    EXPECT_FALSE(array.zero_fill) << fill;
  }
}

TEST(ZarrJson, DTypesHaveOneNameEach) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto name = Zarr3Name(dtype);
    if (!name) continue;
    EXPECT_EQ(DTypeFromZarr3(*name), dtype);
  }
  EXPECT_EQ(Zarr3Name(DType::kF4), std::nullopt);
}

struct BrokenJson {
  const char* name;
  std::string from, to;
  ErrorCode code;
  const char* says;
};
void PrintTo(const BrokenJson& c, std::ostream* out) { *out << c.name; }
class ZarrJsonBroken : public ::testing::TestWithParam<BrokenJson> {};

TEST_P(ZarrJsonBroken, IsRefusedByName) {
  EXPECT_THAT(ParseZarrJson(Json(GetParam().from, GetParam().to)), IsError(GetParam().code, HasSubstr(GetParam().says)));
}

constexpr auto kCorrupt = ErrorCode::kCorrupt;
constexpr auto kUnsupported = ErrorCode::kUnsupported;
INSTANTIATE_TEST_SUITE_P(
    All, ZarrJsonBroken,
    ::testing::Values(
        BrokenJson{"no_version", ",\"zarr_format\":3", "", kCorrupt, "zarr_format"}, BrokenJson{"version", "\"zarr_format\":3", "\"zarr_format\":4", kUnsupported, "zarr_format 3"},
        BrokenJson{"group", "\"array\"", "\"group\"", kCorrupt, "node_type"}, BrokenJson{"grid", "\"regular\"", "\"rectilinear\"", kUnsupported, "rectilinear"},
        BrokenJson{"no_grid", "\"chunk_grid\"", "\"chunk_grit\"", kUnsupported, "chunk_grit"}, BrokenJson{"keys", "{\"name\":\"default\"}", "{\"name\":\"fanout\"}", kUnsupported, "fanout"},
        BrokenJson{"separator", "{\"name\":\"default\"}", "{\"name\":\"default\",\"configuration\":{\"separator\":\"-\"}}", kCorrupt, "separator"},
        BrokenJson{"type", "bfloat16", "float4", kUnsupported, "data_type float4"}, BrokenJson{"type_object", "\"bfloat16\"", "{\"name\":\"datetime64\"}", kUnsupported, "datetime64"},
        BrokenJson{"codec", "\"zstd\"", "\"lzma\"", kUnsupported, "codec lzma"}, BrokenJson{"big_endian", "little", "big", kUnsupported, "big-endian"},
        BrokenJson{"no_endian", "\"configuration\":{\"endian\":\"little\"},", "", kCorrupt, "endian"},
        BrokenJson{"transposed", "{\"configuration\":{\"endian\":\"little\"},\"name\":\"bytes\"},", "{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}},{\"configuration\":{\"endian\":\"little\"},\"name\":\"bytes\"},", kUnsupported, "permuted"},
        BrokenJson{"after_shards", "\"name\":\"sharding_indexed\"}", "\"name\":\"sharding_indexed\"},{\"name\":\"crc32c\"}", kUnsupported, "shards are encoded"},
        BrokenJson{"compressed_index", "{\"name\":\"crc32c\"}", "{\"name\":\"zstd\"}", kUnsupported, "index of a shard"},
        BrokenJson{"inner_does_not_divide", "{\"chunk_shape\":[4,4],\"codecs\"", "{\"chunk_shape\":[4,3],\"codecs\"", kCorrupt, "divide"},
        BrokenJson{"inner_rank", "{\"chunk_shape\":[4,4],\"codecs\"", "{\"chunk_shape\":[4],\"codecs\"", kCorrupt, "divide"},
        BrokenJson{"index_location", "\"index_codecs\"", "\"index_location\":\"middle\",\"index_codecs\"", kCorrupt, "index_location"},
        BrokenJson{"no_fill", "\"fill_value\":0.0,", "", kCorrupt, "fill_value"}, BrokenJson{"negative", "[8,6]", "[8,-6]", kCorrupt, "shape"},
        BrokenJson{"overflow", "[8,6]", "[4294967296,4294967296]", kCorrupt, ""}, BrokenJson{"rank", "[8,6]", "[8]", kCorrupt, "number of axes"},
        BrokenJson{"must_understand", "\"shape\"", "\"secret\":{\"name\":\"x\"},\"shape\"", kUnsupported, "found secret"},
        BrokenJson{"transformers", "\"shape\"", "\"storage_transformers\":[{\"name\":\"x\"}],\"shape\"", kUnsupported, "storage_transformers"}),
    [](const auto& row) { return row.param.name; });

TEST(ZarrJson, SkipsWhatNeedNotBeUnderstood) {
  EXPECT_THAT(ParseZarrJson(Json("\"shape\"", "\"secret\":{\"must_understand\":false},\"attributes\":{\"a\":1},\"dimension_names\":null,\"storage_transformers\":[],\"shape\"")), IsOk());
}

TEST(ZarrJson, BloscJoinedWithAnotherCodecIsRefused) {
  EXPECT_THAT(ParseZarrJson(Plain(R"([{"name":"bytes","configuration":{"endian":"little"}},{"name":"blosc"},{"name":"crc32c"}])")),
              IsError(ErrorCode::kUnsupported, HasSubstr("blosc alone")));
  EXPECT_THAT(ParseZarrJson(Plain("[]")), IsError(ErrorCode::kCorrupt, HasSubstr("codecs")));
}

}  // namespace
}  // namespace crossdock::formats::zarr
