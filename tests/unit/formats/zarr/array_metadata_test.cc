// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/array_metadata.h"
#include "formats/zarr/dtype_names.h"

#include "result_matchers.h"

namespace crossdock::formats::zarr {
namespace {

using ::testing::HasSubstr;

/// A sound `.zarray` in which one text stands for another.
std::string Zarray(const std::string& from = "", const std::string& to = "") {
  std::string text =
      R"({"chunks": [2, 4], "compressor": null, "dtype": "bfloat16", "fill_value": null, "filters": null, "order": "C", "shape": [4, 6], "zarr_format": 2})";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(ZarrArrayMetadata, ReadsWhatMegatronWrote) {
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarray(Zarray()));
  EXPECT_EQ(array.shape, (Shape{4, 6}));
  EXPECT_EQ(array.chunk_shape, (Shape{2, 4}));
  EXPECT_EQ(array.dtype, DType::kBF16);
  EXPECT_EQ(ChunkKey(array, {1, 0}), "1.0");
}

TEST(ZarrArrayMetadata, NamesTheChunkOfAScalar) {
  std::string text = Zarray("[4, 6]", "[]");
  text.replace(text.find("[2, 4]"), 6, "[]");
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarray(text));
  EXPECT_EQ(ChunkKey(array, {}), "0");
}

TEST(ZarrArrayMetadata, SeparatesBySlashWhenToldTo) {
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarray(Zarray("\"order\"", "\"dimension_separator\": \"/\", \"order\"")));
  EXPECT_EQ(ChunkKey(array, {1, 0}), "1/0");
}

TEST(ZarrArrayMetadata, KnowsTheCompressorsThatAreDecoded) {
  struct {
    const char* id;
    Codec codec;
  } const cases[] = {{"zstd", Codec::kZstd}, {"blosc", Codec::kBlosc}, {"gzip", Codec::kGzip}, {"zlib", Codec::kGzip}};
  for (const auto& c : cases) {
    ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarray(Zarray("\"compressor\": null", std::string("\"compressor\": {\"id\": \"") + c.id + "\"}")));
    EXPECT_EQ(array.codecs, Codecs{c.codec});
    EXPECT_FALSE(array.plain());
  }
}

TEST(ZarrArrayMetadata, Int4IsReadAsBytes) {
  ASSERT_OK_AND_ASSIGN(const ArrayMetadata array, ParseZarray(Zarray("bfloat16", "int4")));
  EXPECT_EQ(array.dtype, DType::kI8);
  EXPECT_TRUE(array.nibbles);
}

struct TypeCase {
  const char* name;
  std::string zarr;
  DType dtype;
};
void PrintTo(const TypeCase& c, std::ostream* out) { *out << c.name; }
class ZarrTypes : public ::testing::TestWithParam<TypeCase> {};

TEST_P(ZarrTypes, AreThoseOfNumPyAndTwoMore) { EXPECT_EQ(DTypeFromZarr(GetParam().zarr), GetParam().dtype); }

INSTANTIATE_TEST_SUITE_P(All, ZarrTypes,
                         ::testing::Values(TypeCase{"f4", "<f4", DType::kF32}, TypeCase{"f2", "<f2", DType::kF16}, TypeCase{"f8", "<f8", DType::kF64},
                                           TypeCase{"i8", "<i8", DType::kI64}, TypeCase{"i4", "<i4", DType::kI32}, TypeCase{"i2", "<i2", DType::kI16},
                                           TypeCase{"i1", "|i1", DType::kI8}, TypeCase{"u1", "|u1", DType::kU8}, TypeCase{"b1", "|b1", DType::kBool},
                                           TypeCase{"bf16", "bfloat16", DType::kBF16}, TypeCase{"fp8", "float8_e4m3fn", DType::kF8E4M3}),
                         [](const auto& row) { return row.param.name; });

struct BrokenCase {
  const char* name;
  std::string from, to;
  ErrorCode code;
  const char* says;
};
void PrintTo(const BrokenCase& c, std::ostream* out) { *out << c.name; }
class ZarrBroken : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(ZarrBroken, IsRefusedByName) {
  EXPECT_THAT(ParseZarray(Zarray(GetParam().from, GetParam().to)), IsError(GetParam().code, HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    All, ZarrBroken,
    ::testing::Values(
        BrokenCase{"compressed", "\"compressor\": null", "\"compressor\": {\"id\": \"bz2\", \"level\": 5}", ErrorCode::kUnsupported, "compressor bz2"},
        BrokenCase{"no_compressor", "\"compressor\": null, ", "", ErrorCode::kCorrupt, "compressor"},
        BrokenCase{"filtered", "\"filters\": null", "\"filters\": [{\"id\": \"delta\"}]", ErrorCode::kUnsupported, "filter delta"},
        BrokenCase{"fortran", "\"order\": \"C\"", "\"order\": \"F\"", ErrorCode::kUnsupported, "order F"},
        BrokenCase{"version_3", "\"zarr_format\": 2", "\"zarr_format\": 3", ErrorCode::kUnsupported, "zarr_format 2"},
        BrokenCase{"no_version", ", \"zarr_format\": 2", "", ErrorCode::kCorrupt, "zarr_format"},
        BrokenCase{"big_endian", "bfloat16", ">f4", ErrorCode::kUnsupported, "big-endian"},
        BrokenCase{"unknown_type", "bfloat16", "<V2", ErrorCode::kUnsupported, "<V2"},
        BrokenCase{"type_is_list", "\"bfloat16\"", "[[\"a\", \"<f4\"]]", ErrorCode::kUnsupported, "unknown"},
        BrokenCase{"negative_shape", "[4, 6]", "[4, -6]", ErrorCode::kCorrupt, "shape"},
        BrokenCase{"shape_is_text", "[4, 6]", "\"4, 6\"", ErrorCode::kCorrupt, "shape"},
        BrokenCase{"fraction", "[4, 6]", "[4, 6.5]", ErrorCode::kCorrupt, "shape"},
        BrokenCase{"beyond_int64", "[4, 6]", "[4, 99999999999999999999]", ErrorCode::kCorrupt, "shape"},
        BrokenCase{"overflow", "[4, 6]", "[4294967296, 4294967296]", ErrorCode::kCorrupt, ""},
        BrokenCase{"chunk_of_none", "[2, 4]", "[2, 0]", ErrorCode::kCorrupt, "chunks"},
        BrokenCase{"chunk_overflow", "[2, 4]", "[4294967296, 4294967296]", ErrorCode::kCorrupt, ""},
        BrokenCase{"ranks_differ", "[2, 4]", "[2]", ErrorCode::kCorrupt, "number of axes"},
        BrokenCase{"nine_axes", "[4, 6]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]", ErrorCode::kUnsupported, "axes"},
        BrokenCase{"twice", "\"order\": \"C\"", "\"order\": \"C\", \"shape\": [1, 1]", ErrorCode::kCorrupt, "shape"},
        BrokenCase{"separator", "\"order\": \"C\"", "\"order\": \"C\", \"dimension_separator\": \"..\"", ErrorCode::kCorrupt, "dimension_separator"},
        BrokenCase{"cut", "2}", "2", ErrorCode::kCorrupt, ""}),
    [](const auto& row) { return row.param.name; });

TEST(ZarrArrayMetadata, RefusesWhatIsNoObject) {
  for (const char* text : {"", "[]", "null", "{"}) EXPECT_THAT(ParseZarray(text), IsError(ErrorCode::kCorrupt, HasSubstr(""))) << text;
}

}  // namespace
}  // namespace crossdock::formats::zarr
