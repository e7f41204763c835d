// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/torch_file.h"

#include "formats/torch_zip/tensor_walk.h"
#include "result_matchers.h"
#include "unit/formats/bytes_file.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::torch_zip {
namespace {

using ::testing::HasSubstr;

Result<TorchFile> ReadAll(const BytesFile& file) { return ReadTorchFile(file, {0, file.size()}); }

class GoldenTorchFile : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTorchFile, ReadsWhatTorchSaved) {
  const Value expected = ReadExpected("torch_zip");
  const BytesFile file(ReadGolden(std::string("torch_zip/") + GetParam()));
  ASSERT_OK_AND_ASSIGN(const TorchFile torch, ReadAll(file));
  const TensorLoader load = [&](const TensorValue& t) -> Result<std::string> {
    CROSSDOCK_ASSIGN_OR_RETURN(const TensorValue loaded, LoadTensor(file, torch, t, 1 << 20));
    return *loaded.bytes;
  };
  EXPECT_EQ(Difference(torch.value, *expected.Find(GetParam()), load), "");
}

TEST_P(GoldenTorchFile, WritesAFileThatHoldsTheSame) {
  const BytesFile file(ReadGolden(std::string("torch_zip/") + GetParam()));
  ASSERT_OK_AND_ASSIGN(TorchFile torch, ReadAll(file));
  const Status loaded = LoadAllTensors(file, torch, 1 << 20);
  ASSERT_THAT(loaded, IsOk());
  const auto bytes = WriteTorchFile(torch.value, "copy");
  const std::string name = GetParam();
  if (name == "dtypes.pt") {  // its complex128 tensors have no DType and thus no data to write
    EXPECT_THAT(bytes, IsError(ErrorCode::kUnsupported, HasSubstr("cannot be carried")));
    return;
  }
  ASSERT_THAT(bytes, IsOk());
  const BytesFile copy(*bytes);
  ASSERT_OK_AND_ASSIGN(TorchFile again, ReadAll(copy));
  ASSERT_THAT(LoadAllTensors(copy, again, 1 << 20), IsOk());
  EXPECT_TRUE(again.value.Equals(torch.value));
}

TEST_P(GoldenTorchFile, NoTruncationIsTakenForTheWhole) {
  const std::string whole = ReadGolden(std::string("torch_zip/") + GetParam());
  const std::size_t step = whole.size() < 2000 ? 1 : whole.size() / 500;
  for (std::size_t size = 0; size < whole.size(); size += step) {
    EXPECT_FALSE(ReadAll(BytesFile(whole.substr(0, size))).has_value()) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTorchFile,
                         ::testing::Values("bare.pt", "bare_empty.pt", "bare_scalar.pt", "common.pt", "dtypes.pt",
                                           "legacy_common.pt", "legacy_dtypes.pt", "legacy_views.pt", "numbers.pt",
                                           "parameters.pt", "protocol4.pt", "views.pt"));

TEST(TorchFile, ReadsADictOfThousandsInOrder) {
  const BytesFile file(ReadGolden("torch_zip/many.pt"));
  ASSERT_OK_AND_ASSIGN(const TorchFile torch, ReadAll(file));
  ASSERT_NE(torch.value.as_dict(), nullptr);
  ASSERT_EQ(torch.value.as_dict()->items.size(), 2300U);
  EXPECT_EQ(*torch.value.as_dict()->items[2299].first.as_string(), "key.2299");
  EXPECT_EQ(torch.value.GetInt("key.1"), std::nullopt);  // the dot separates
  EXPECT_EQ(*torch.value.Find("key.1234")->as_int(), 1234);
}

TEST(TorchFile, RefusesWhatWouldRun) {
  for (const char* name : {"torch_zip/unsafe.pt", "torch_zip/unsafe_legacy.pt"}) {
    EXPECT_THAT(ReadAll(BytesFile(ReadGolden(name))), IsError(ErrorCode::kUnsafe, HasSubstr("posix.system"))) << name;
  }
}

TEST(TorchFile, ASliceOfALargeStorageReadsItsOwnBytesOnly) {
  const BytesFile file(ReadGolden("torch_zip/views.pt"));
  ASSERT_OK_AND_ASSIGN(const TorchFile torch, ReadAll(file));
  const TensorValue* slice = torch.value.Find("small_of_large")->as_tensor();
  ASSERT_NE(slice, nullptr);
  EXPECT_EQ(slice->storage_numel, 64 * 32);
  const std::int64_t before = file.bytes_read;
  ASSERT_OK_AND_ASSIGN(const TensorValue loaded, LoadTensor(file, torch, *slice, 1 << 20));
  EXPECT_EQ(file.bytes_read - before, 3 * 4);
  EXPECT_EQ(loaded.bytes->size(), 12U);
  ASSERT_OK_AND_ASSIGN(const std::string written, WriteTorchFile(Value(loaded), "slice"));
  EXPECT_LT(written.size(), 1000U);
}

TEST(TorchFile, TensorsBeyondTheLimitAreNotLoaded) {
  const BytesFile file(ReadGolden("torch_zip/views.pt"));
  ASSERT_OK_AND_ASSIGN(TorchFile torch, ReadAll(file));
  EXPECT_THAT(LoadAllTensors(file, torch, 100), IsError(ErrorCode::kUnsupported, HasSubstr("too large")));
}

TEST(TorchFile, AnItemInTheMiddleOfAFileIsReadInPlace) {
  const std::string item = ReadGolden("torch_zip/bare.pt");
  const BytesFile file("some bytes" + item + "and more");
  const ByteRange range{10, static_cast<std::int64_t>(item.size())};
  ASSERT_OK_AND_ASSIGN(const TorchFile torch, ReadTorchFile(file, range));
  ASSERT_EQ(torch.storages.size(), 1U);
  EXPECT_EQ(torch.storages.at("0").length, 24);
  EXPECT_GT(torch.storages.at("0").offset, 10);
}

TEST(TensorWalk, ReplacesTensorsInsideInertObjects) {
  Opaque object;
  object.module = "m";
  object.name = "C";
  object.args = {Value(TensorValue{})};
  object.state = std::make_shared<Value>(Value::MakeDict({{Value("t"), Value(TensorValue{})}}));
  const Value value = Value::MakeTuple({Value(object), Value(1)});
  int seen = 0;
  ForEachTensor(value, [&](const TensorValue&) { ++seen; });
  EXPECT_EQ(seen, 2);
  ASSERT_OK_AND_ASSIGN(const Value mapped, MapTensors(value, [](const TensorValue& t) -> Result<TensorValue> {
    TensorValue out = t;
    out.storage = "9";
    return out;
  }));
  EXPECT_EQ((*mapped.as_sequence())[0].Find("t")->as_tensor()->storage, "9");
  EXPECT_EQ(value.as_sequence()->at(0).Find("t")->as_tensor()->storage, "");
}

}  // namespace
}  // namespace crossdock::formats::torch_zip
