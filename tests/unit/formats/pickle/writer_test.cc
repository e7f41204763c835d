// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/writer.h"

#include "formats/pickle/reader.h"
#include "result_matchers.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::pickle {
namespace {

using ::testing::HasSubstr;

Value Tensor(DType dtype, Shape shape, std::string bytes) {
  TensorValue t;
  t.dtype = dtype;
  t.strides = RowMajorStrides(shape);
  t.shape = shape;
  t.storage_numel = static_cast<std::int64_t>(bytes.size()) / ElementSize(dtype);
  t.bytes = std::make_shared<std::string>(std::move(bytes));
  return Value(std::move(t));
}

TEST(WritePickle, RoundTripsEverythingThatPythonWrote) {
  for (const char* file : {"plain.2.pkl", "plain.5.pkl", "newer.4.pkl", "built.pkl"}) {
    ASSERT_OK_AND_ASSIGN(Value value, ReadPickle(ReadGolden(std::string("pickle/") + file)));
    // One integer of the file needs more bytes than protocol 2's LONG1 has.
    if (const Value* ints = value.Find("ints")) {
      Value fewer = *ints;
      fewer.mutable_sequence()->pop_back();
      value.Set("ints", fewer);
    }
    ASSERT_OK_AND_ASSIGN(const Pickled written, WritePickle(value));
    ASSERT_OK_AND_ASSIGN(const Value back, ReadPickle(written.bytes));
    EXPECT_TRUE(back.Equals(value)) << file;
    ASSERT_OK_AND_ASSIGN(const Pickled again, WritePickle(back));
    EXPECT_EQ(again.bytes, written.bytes) << file;
  }
}

TEST(WritePickle, NamesARepeatedTextOnce) {
  ASSERT_OK_AND_ASSIGN(const Pickled written, WritePickle(Value::MakeList({Value("twice"), Value("once"), Value("twice")})));
  const std::string zeros(3, '\0');
  EXPECT_EQ(written.bytes, "\x80\x02](X\x05" + zeros + "twiceq" + std::string(1, '\0') + "X\x04" + zeros + "once" + "h" +
                               std::string(1, '\0') + "e.");
}

TEST(WritePickle, TiedTensorsShareAStorageAndViewsGetTheirOwn) {
  const Value whole = Tensor(DType::kU8, {2, 2}, "abcd");
  TensorValue column = *whole.as_tensor();
  column.shape = {2};
  column.strides = {2};
  column.storage_offset = 1;
  ASSERT_OK_AND_ASSIGN(const Pickled written, WritePickle(Value::MakeList({whole, whole, Value(column)})));
  ASSERT_EQ(written.storages.size(), 2U);
  EXPECT_EQ(*written.storages[0], "abcd");
  EXPECT_EQ(*written.storages[1], "bd");
  ASSERT_OK_AND_ASSIGN(const Value back, ReadPickle(written.bytes));
  const ValueList& items = *back.as_sequence();
  EXPECT_EQ(items[1].as_tensor()->storage, "0");
  EXPECT_EQ(items[2].as_tensor()->storage, "1");
  EXPECT_EQ(items[2].as_tensor()->strides, Dims({1}));
}

TEST(WritePickle, TypesWithoutAStorageClassAreUntyped) {
  for (DType dtype : {DType::kF8E4M3, DType::kU16, DType::kF8E8M0, DType::kBF16, DType::kC64}) {
    ASSERT_OK_AND_ASSIGN(const Pickled written, WritePickle(Tensor(dtype, {2}, std::string(static_cast<std::size_t>(2 * ElementSize(dtype)), 'x'))));
    ASSERT_OK_AND_ASSIGN(const Value back, ReadPickle(written.bytes));
    ASSERT_NE(back.as_tensor(), nullptr);
    EXPECT_EQ(back.as_tensor()->dtype, dtype);
    EXPECT_EQ(back.as_tensor()->storage_numel, 2);
  }
}

TEST(WritePickle, RefusesTensorsWithoutData) {
  TensorValue t;
  t.shape = {2};
  t.strides = {1};
  EXPECT_THAT(WritePickle(Value(t)), IsError(ErrorCode::kUnsupported, HasSubstr("was not loaded")));
  t.bytes = std::make_shared<std::string>("abc");
  EXPECT_THAT(WritePickle(Value(t)), IsError(ErrorCode::kCorrupt, HasSubstr("past the end")));
}

TEST(EmitTensor, GivesTheShortestFormByteForByte) {
  Emitter out(false);
  out.Start();
  EmitTensor(out, DType::kBF16, {2, 3}, "0");
  out.Stop();
  const std::string expected =
      std::string("\x80\x02") + "ctorch._utils\n_rebuild_tensor_v2\n((X\x07" + std::string(3, '\0') + "storagectorch\nBFloat16Storage\n" +
      "X\x01" + std::string(3, '\0') + "0X\x03" + std::string(3, '\0') + "cpuK\x06tQK" + std::string(1, '\0') +
      "(K\x02K\x03t(K\x03K\x01t\x89" "ccollections\nOrderedDict\n)RtR.";
  EXPECT_EQ(out.bytes(), expected);
  EXPECT_EQ(out.bytes().size(), 135U);
}

}  // namespace
}  // namespace crossdock::formats::pickle
