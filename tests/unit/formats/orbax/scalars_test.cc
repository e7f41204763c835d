// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/scalars.h"

#include <array>

#include "formats/orbax/orbax.h"
#include "io/memory_storage.h"
#include "read_back.h"
#include "result_matchers.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::HasSubstr;

Value Json(std::string_view text) { return *ParseJson(text); }

Entry Scalar(DType dtype, Shape shape = {}) {
  Entry entry;
  entry.dtype = dtype;
  entry.shape = std::move(shape);
  return entry;
}

TEST(OrbaxScalars, CountersAreWholeNumbersWithoutAxes) {
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kU32, DType::kBool}) EXPECT_TRUE(IsCounter(Scalar(dtype)));
  EXPECT_FALSE(IsCounter(Scalar(DType::kF32)));
  EXPECT_FALSE(IsCounter(Scalar(DType::kI32, {1})));
}

TEST(OrbaxScalars, KeepTheirSign) {
  const std::string minus = "\xFE\xFF\xFF\xFF";
  EXPECT_EQ(ToJson(ValueRow(Scalar(DType::kI32), std::as_bytes(std::span(minus))), 0), R"({"dtype": "I32", "shape": [], "values": [-2]})");
  EXPECT_EQ(ToJson(ValueRow(Scalar(DType::kU32), std::as_bytes(std::span(minus))), 0), R"({"dtype": "U32", "shape": [], "values": [4294967294]})");
  EXPECT_EQ(ToJson(ValueRow(Scalar(DType::kBool), std::as_bytes(std::span(minus)).first(1)), 0), R"({"dtype": "BOOL", "shape": [], "values": [true]})");
}

TEST(OrbaxScalars, SettingsAndRandomKeysAreRecordedToo) {
  const float half = 0.5F;
  EXPECT_EQ(ToJson(ValueRow(Scalar(DType::kF32), std::as_bytes(std::span(&half, 1))), 0), R"({"dtype": "F32", "shape": [], "values": [0.5]})");
  const std::array<std::uint32_t, 2> words = {7, 0xFFFFFFFFU};
  Entry key = Scalar(DType::kU32);
  key.shape = {2};
  EXPECT_EQ(ToJson(ValueRow(key, std::as_bytes(std::span(words))), 0), R"({"dtype": "U32", "shape": [2], "values": [7, 4294967295]})");
  EXPECT_TRUE(IsRecorded(key));
  EXPECT_TRUE(IsRecorded(Scalar(DType::kF32)));
  key.dtype = DType::kF32;
  EXPECT_FALSE(IsRecorded(key)) << "a parameter";
}

TEST(OrbaxScalars, RefuseWhatDoesNotFit) {
  EXPECT_EQ(ConstantOf("a", Json(R"({"dtype": "F32", "shape": [3], "values": [1.5, 2, -0.5]})"))->bytes, std::string("\0\0\xC0\x3F\0\0\0\x40\0\0\0\xBF", 12));
  for (const char* wrong : {R"({"dtype": "I32", "shape": [], "values": [4294967296]})", R"({"dtype": "I32", "shape": [], "values": [1.5]})",
                            R"({"dtype": "I32", "shape": [2], "values": [1]})", R"({"dtype": "F8_E4M3", "shape": [], "values": [1]})", R"({"dtype": "I32", "shape": [0], "values": []})",
                            R"({"shape": [], "values": [1]})"}) {
    EXPECT_THAT(ConstantOf("a", Json(wrong)), IsError(ErrorCode::kUnsupported, HasSubstr("no form in an array"))) << wrong;
  }
}

TEST(OrbaxScalars, AreWrittenIntoTheStoreAndReadByValue) {
  for (const bool ocdbt : {true, false}) {
    for (const bool zarr3 : {true, false}) {
      Catalog target;
      target.objects["tree"] = Json(R"([{"path": ["opt_state", 0, "count"], "value_type": "np.ndarray"}, {"path": ["opt_state", 0, "ns_coeffs"], "value_type": "np.ndarray"},
                                        {"path": ["step"], "value_type": "np.ndarray"}])");
      target.objects["scalars"] = Json(R"({"step": {"dtype": "I32", "shape": [], "values": [7]}, "opt_state.0.count": {"dtype": "I32", "shape": [], "values": [5]},
                                          "opt_state.0.ns_coeffs": {"dtype": "F32", "shape": [3], "values": [1.5, 2.0, -0.5]}})");
      target.objects["orbax"] = Value::MakeDict();
      target.objects["orbax"].Set("ocdbt", Value(ocdbt));
      target.objects["orbax"].Set("zarr3", Value(zarr3));
      io::MemoryStorage storage;
      ASSERT_THAT(storage.MakeDir("/7"), IsOk());
      const auto writer = MakeOrbaxWriter();
      ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(std::move(target)));
      EXPECT_TRUE(placement.catalog.entries.empty());
      ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "/7"), IsOk());
      ASSERT_OK_AND_ASSIGN(const auto reader, OpenOrbax(storage, "/7"));
      const Catalog& catalog = reader->catalog();
      ASSERT_EQ(catalog.entries.size(), 3U);
      EXPECT_EQ(ToJson(catalog.objects.at("scalars"), 0),
                R"({"opt_state.0.count": {"dtype": "I32", "shape": [], "values": [5]}, "step": {"dtype": "I32", "shape": [], "values": [7]}})");
      ASSERT_OK_AND_ASSIGN(const std::string coefficients, ReadBack(storage, *reader, catalog.Find("opt_state.0.ns_coeffs")));
      EXPECT_EQ(coefficients, std::string("\0\0\xC0\x3F\0\0\0\x40\0\0\0\xBF", 12));
      std::map<std::string, std::string> files = storage.Files("/7");
      for (const FileRef& file : writer->MetadataFiles()) EXPECT_EQ(files.count(file.path), 1U) << file.path;
    }
  }
}

TEST(OrbaxScalars, NeedAPlaceInTheTree) {
  Catalog target;
  target.objects["tree"] = Value::MakeList();
  target.objects["scalars"] = Json(R"({"step": {"dtype": "I32", "shape": [], "values": [7]}})");
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(std::move(target)), IsError(ErrorCode::kUnsupported, HasSubstr("a value has no place in the tree")));
}

}  // namespace
}  // namespace crossdock::formats::orbax
