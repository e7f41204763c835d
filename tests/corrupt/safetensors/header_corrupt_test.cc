// SPDX-License-Identifier: Apache-2.0
// Each way in which a safetensors header can lie, by name. The verdicts are those of safetensors 0.8.0, but where
// FORMAT.md says that ours differs.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/endian.h"
#include "formats/safetensors/header.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::safetensors {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

constexpr const char* kFile = "/m.safetensors";

/// Length, header, data as a file, read back through the reader's own door.
Result<Header> ReadFileOf(const std::string& bytes) {
  io::MemoryStorage storage;
  CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, kFile, bytes));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(kFile));
  return ReadHeader(*file, static_cast<std::int64_t>(bytes.size()));
}

std::string FileOf(const std::string& json, std::size_t data) {
  std::string out(8, '\0');
  StoreLittle<std::uint64_t>(out.data(), json.size());
  return out + json + std::string(data, '\x2a');
}

/// One F32 tensor of two elements, whose description is `fields`.
std::string One(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

struct Case {
  std::string name;
  std::string json;
  std::size_t data;
  std::string message;      // empty: accepted
  ErrorCode code = ErrorCode::kCorrupt;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const std::string kGood = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

std::vector<Case> RejectedJson() {
  const std::string json = "invalid JSON in header";
  return {
      {"Empty", "", 0, json},
      {"OnlySpaces", "        ", 0, json},
      {"NotJson", "hello world", 0, json},
      {"Array", "[]", 0, json},
      {"String", "\"a\"", 0, json},
      {"Number", "7", 0, json},
      {"Null", "null", 0, json},
      {"ByteOrderMark", "\xef\xbb\xbf{}", 0, json},
      {"NulPadding", "{}" + std::string(6, '\0'), 0, json},
      {"TrailingText", "{} x", 0, json},
      {"TwoObjects", "{}{}", 0, json},
      {"TrailingCommaInObject", "{\"a\":{" + kGood + "},}", 8, json},
      {"TrailingCommaInTensor", One(kGood + ","), 8, json},
      {"UnclosedObject", "{\"a\":{" + kGood + "}", 8, json},
      {"UnclosedString", "{\"a", 0, json},
      {"SingleQuotes", "{'a':{}}", 0, json},
      {"Comment", "{/* */}", 0, json},
      {"NotANumber", One(R"("dtype":"F32","shape":[NaN],"data_offsets":[0,8])"), 8, json},
      {"NanInExtraField", One(kGood + R"(,"x":NaN)"), 8, json},
      {"BadEscapeInName", R"({"\q":{)" + kGood + "}}", 8, json},
      {"LoneSurrogateInName", R"({"\ud800":{)" + kGood + "}}", 8, json},
      {"RawNewlineInName", "{\"a\nb\":{" + kGood + "}}", 8, json},
      {"MissingColon", "{\"a\"{" + kGood + "}}", 8, json},
      {"TensorIsNumber", R"({"a":1})", 0, json},
      {"TensorIsNull", R"({"a":null})", 0, json},
      {"TensorIsArray", R"({"a":["F32",[2],[0,8]]})", 8, json},
      {"DTypeMissing", One(R"("shape":[2],"data_offsets":[0,8])"), 8, json},
      {"ShapeMissing", One(R"("dtype":"F32","data_offsets":[0,8])"), 8, json},
      {"OffsetsMissing", One(R"("dtype":"F32","shape":[2])"), 8, json},
      {"DTypeUnknown", One(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8, json},
      {"DTypeLowerCase", One(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"), 8, json},
      {"DTypeE4M3FN", One(R"("dtype":"F8_E4M3FN","shape":[8],"data_offsets":[0,8])"), 8, json},
      {"DTypeComplex128", One(R"("dtype":"C128","shape":[1],"data_offsets":[0,16])"), 16, json},
      {"DTypeEmpty", One(R"("dtype":"","shape":[2],"data_offsets":[0,8])"), 8, json},
      {"DTypeNumber", One(R"("dtype":4,"shape":[2],"data_offsets":[0,8])"), 8, json},
      {"ShapeNegative", One(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8, json},
      {"ShapeMinusZero", One(R"("dtype":"F32","shape":[-0],"data_offsets":[0,0])"), 0, json},
      {"ShapeFloat", One(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8, json},
      {"ShapeExponent", One(R"("dtype":"F32","shape":[2e0],"data_offsets":[0,8])"), 8, json},
      {"ShapeString", One(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), 8, json},
      {"ShapeLeadingZero", One(R"("dtype":"F32","shape":[02],"data_offsets":[0,8])"), 8, json},
      {"ShapeNumber", One(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), 8, json},
      {"ShapeNull", One(R"("dtype":"F32","shape":null,"data_offsets":[0,8])"), 8, json},
      {"ShapeNested", One(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8, json},
      {"ShapeBeyond64Bits", One(R"("dtype":"F32","shape":[99999999999999999999999],"data_offsets":[0,8])"), 8, json},
      {"OffsetsOne", One(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), 8, json},
      {"OffsetsThree", One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8, json},
      {"OffsetsNone", One(R"("dtype":"F32","shape":[2],"data_offsets":[])"), 8, json},
      {"OffsetsNegative", One(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), 8, json},
      {"OffsetsString", One(R"("dtype":"F32","shape":[2],"data_offsets":["0","8"])"), 8, json},
      {"OffsetsObject", One(R"("dtype":"F32","shape":[2],"data_offsets":{})"), 8, json},
      {"MetadataNumber", R"({"__metadata__":{"a":1}})", 0, json},
      {"MetadataNested", R"({"__metadata__":{"a":{}}})", 0, json},
      {"MetadataValueNull", R"({"__metadata__":{"a":null}})", 0, json},
      {"MetadataArray", R"({"__metadata__":[]})", 0, json},
      {"MetadataString", R"({"__metadata__":"pt"})", 0, json},
      {"DeepNesting", One(kGood + ",\"x\":" + std::string(500, '[') + std::string(500, ']')), 8, json},
      {"InvalidUtf8InName", "{\"\xff\":{" + kGood + "}}", 8, "invalid UTF-8 in header"},
      {"InvalidUtf8CutSequence", "{\"\xe2\x98\":{" + kGood + "}}", 8, "invalid UTF-8 in header"},
      {"OverlongUtf8", "{\"\xc0\x80\":{" + kGood + "}}", 8, "invalid UTF-8 in header"},
      // Upstream takes the last of two equal names in silence; ours refuses.
      {"DuplicateTensor", "{\"a\":{" + kGood + "},\"a\":{" + kGood + "}}", 8, "duplicate key `a` in /m.safetensors"},
      {"DuplicateTensorEscaped", "{\"a\":{" + kGood + "},\"\\u0061\":{" + kGood + "}}", 8, "duplicate key `a`"},
      {"DuplicateMetadata", R"({"__metadata__":{},"__metadata__":{}})", 0, "duplicate key `__metadata__`"},
      {"DuplicateMetadataNull", R"({"__metadata__":null,"__metadata__":null})", 0, "duplicate key `__metadata__`"},
      {"DuplicateMetadataKey", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "duplicate key `a`"},
      {"DuplicateField", One(kGood + R"(,"shape":[2])"), 8, "duplicate key `shape`"},
  };
}

std::vector<Case> RejectedOffsets() {
  const std::string offset = "invalid offset for tensor";
  const std::string size = "invalid shape, data type, or offset";
  const std::string uncovered = "incomplete metadata, file not fully covered";
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a + R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  return {
      {"FirstNotAtZero", One(R"("dtype":"U8","shape":[4],"data_offsets":[4,8])"), 8, offset},
      {"Hole", two("[0,4]", "[5,9]"), 9, offset},
      {"Overlap", two("[0,4]", "[3,7]"), 7, offset},
      {"SameRange", two("[0,4]", "[0,4]"), 4, offset},
      {"BeginAfterEnd", One(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), 4, offset},
      {"EndFarAway", One(R"("dtype":"U8","shape":[4],"data_offsets":[0,9223372036854775807])"), 4, size},
      {"TooSmallForShape", One(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4, size},
      {"TooLargeForShape", One(R"("dtype":"F32","shape":[2],"data_offsets":[0,12])"), 12, size},
      {"ScalarWithoutBytes", One(R"("dtype":"F32","shape":[],"data_offsets":[0,0])"), 0, size},
      {"EmptyWithBytes", One(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])"), 4, size},
      {"ShapeOverflows", One(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"), 8, "overflow computing buffer size"},
      {"BitsOverflow", One(R"("dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,8])"), 8, "overflow computing buffer size"},
      {"AxisBeyondInt64", One(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8])"), 8, "overflow computing buffer size"},
      {"OffsetBeyondInt64", One(R"("dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551615])"), 8, "overflow computing buffer size"},
      {"HalfByte", One(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1, "subbytes"},
      {"SixBits", One(R"("dtype":"F6_E2M3","shape":[2],"data_offsets":[0,1])"), 1, "subbytes"},
      {"DataOneByteShort", One(kGood), 7, uncovered},
      {"DataOneByteExtra", One(kGood), 9, uncovered},
      {"DataMissing", One(kGood), 0, uncovered},
      {"DataWithoutTensor", "{}", 1, uncovered},
      {"NineAxes", One(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1, "too many axes", ErrorCode::kUnsupported},
  };
}

std::vector<Case> AcceptedOddities() {
  return {
      {"NoTensors", "{}", 0, ""},
      {"SpacesBehind", "{}      ", 0, ""},
      {"AnyWhiteSpaceBehind", "{}\n\t\r ", 0, ""},
      {"WhiteSpaceBefore", "  {}", 0, ""},
      {"WhiteSpaceInside", "{ \"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ 1 ] , \"data_offsets\" : [ 0 , 1 ] } }", 1, ""},
      {"OddHeaderLength", One(kGood), 8, ""},
      {"UnalignedTensor", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})", 9, ""},
      {"OrderNotByOffset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, ""},
      {"ExtraFields", One(kGood + R"(,"x":[1,{"y":null}],"z":true,"w":"t","v":1.5e3)"), 8, ""},
      {"MetadataNull", R"({"__metadata__":null})", 0, ""},
      {"MetadataLast", "{\"a\":{" + kGood + R"(},"__metadata__":{"format":"pt"}})", 8, ""},
      {"EmptyTensorInside", R"({"a":{"dtype":"F32","shape":[0,4],"data_offsets":[4,4]},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, ""},
      {"HugeEmptyTensor", One(R"("dtype":"F32","shape":[0,4611686018427387904],"data_offsets":[0,0])"), 0, ""},
      {"Scalar", One(R"("dtype":"F32","shape":[],"data_offsets":[0,4])"), 4, ""},
      {"EmptyName", R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, ""},
      {"NameWithNul", R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, ""},
      {"NameWithPath", R"({"../../etc/passwd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, ""},
      {"WholeSubBytes", One(R"("dtype":"F4","shape":[2],"data_offsets":[0,1])"), 1, ""},
      {"BoolByteTwo", One(R"("dtype":"BOOL","shape":[1],"data_offsets":[0,1])"), 1, ""},
      {"EightAxes", One(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1, ""},
  };
}

class CorruptHeader : public ::testing::TestWithParam<Case> {};

TEST_P(CorruptHeader, IsRefusedOrAccepted) {
  const Case& c = GetParam();
  const auto header = ReadFileOf(FileOf(c.json, c.data));
  if (c.message.empty()) {
    EXPECT_THAT(header, IsOk());
  } else {
    EXPECT_THAT(header, IsError(c.code, HasSubstr(c.message)));
  }
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Json, CorruptHeader, ::testing::ValuesIn(RejectedJson()), NameOf);
INSTANTIATE_TEST_SUITE_P(Offsets, CorruptHeader, ::testing::ValuesIn(RejectedOffsets()), NameOf);
INSTANTIATE_TEST_SUITE_P(Oddities, CorruptHeader, ::testing::ValuesIn(AcceptedOddities()), NameOf);

struct LengthCase {
  std::string name;
  std::string bytes;
  std::string message;
};
void PrintTo(const LengthCase& c, std::ostream* out) { *out << c.name; }
class CorruptLength : public ::testing::TestWithParam<LengthCase> {};

TEST_P(CorruptLength, IsRefused) {
  EXPECT_THAT(ReadFileOf(GetParam().bytes), IsError(ErrorCode::kCorrupt, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Files, CorruptLength,
    ::testing::Values(LengthCase{"EmptyFile", "", "header too small"}, LengthCase{"SevenBytes", "1234567", "header too small"},
                      LengthCase{"LengthZero", std::string(8, '\0'), "invalid JSON in header"},
                      LengthCase{"LengthBeyondFile", "\x08\0\0\0\0\0\0\0{}"s, "invalid header length"},
                      LengthCase{"LengthAboveLimit", "\x01\xe1\xf5\x05\0\0\0\0{}"s, "header too large"},
                      LengthCase{"LengthAtLimit", "\0\xe1\xf5\x05\0\0\0\0{}"s, "invalid header length"},
                      LengthCase{"LengthMinusOne", std::string(8, '\xff') + "{}", "header too large"},
                      LengthCase{"LengthSignBit", std::string(7, '\0') + "\x80{}", "header too large"}),
    [](const auto& row) { return row.param.name; });

TEST(CorruptHeaderMessage, NamesTheCutTensors) {
  const auto header = ReadFileOf(FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 6));
  ASSERT_THAT(header, IsError(ErrorCode::kCorrupt, HasSubstr("1 of 2 tensors lie beyond its end")));
  EXPECT_EQ(header.error().tensor, "b");
  EXPECT_EQ(header.error().expected, "8 bytes of data");
  EXPECT_EQ(header.error().found, "6 bytes of data");
}

TEST(CorruptHeaderMessage, NamesWhiteSpaceBefore) {
  const auto header = ReadFileOf(FileOf("  {}", 0));
  ASSERT_THAT(header, IsOk());
  EXPECT_THAT(header->notices, ::testing::ElementsAre(HasSubstr("white space")));
}

TEST(CorruptHeader, EveryTruncationIsAnError) {
  const std::string good = FileOf("{\"a\":{" + kGood + "}}", 8);
  ASSERT_THAT(ReadFileOf(good), IsOk());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ReadFileOf(good.substr(0, size)).has_value()) << size;
  }
}

}  // namespace
}  // namespace crossdock::formats::safetensors
