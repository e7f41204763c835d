// SPDX-License-Identifier: Apache-2.0
// Torch files broken on purpose, one by one, from good ones.
#include <functional>

#include "base/endian.h"
#include "formats/pickle/writer.h"
#include "formats/torch_zip/torch_file.h"
#include "formats/torch_zip/zip_writer.h"
#include "result_matchers.h"
#include "unit/formats/bytes_file.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::torch_zip {
namespace {

using ::testing::HasSubstr;

std::string TensorPickle(std::int64_t numel, std::int64_t offset, Dims shape, Dims strides) {
  pickle::Emitter out(false);
  out.Start();
  out.Global("torch._utils", "_rebuild_tensor_v2");
  out.Mark();
  out.Mark();
  out.Text("storage");
  out.Global("torch", "FloatStorage");
  out.Text("0");
  out.Text("cpu");
  out.Int(numel);
  out.TupleFromMark();
  out.PersistentId();
  out.Int(offset);
  out.Tuple(shape);
  out.Tuple(strides);
  out.Bool(false);
  out.EmptyDict();
  out.TupleFromMark();
  out.Reduce();
  out.Stop();
  return out.bytes();
}

using Parts = std::vector<std::pair<std::string, std::string>>;

Parts GoodParts() {
  return {{"data.pkl", TensorPickle(6, 0, {2, 3}, {3, 1})}, {"byteorder", "little"}, {"data/0", std::string(24, 'x')}, {"version", "3\n"}};
}

std::string Zip(const Parts& parts) {
  ZipWriter zip("archive");
  for (const auto& [name, content] : parts) zip.Add(name, content);
  return zip.Finish();
}

std::string With(std::string name, std::string content) {
  Parts parts = GoodParts();
  for (auto& part : parts) {
    if (part.first == name) part.second = content;
  }
  return Zip(parts);
}

std::string Without(std::string_view name) {
  Parts parts = GoodParts();
  std::erase_if(parts, [&](const auto& part) { return part.first == name; });
  return Zip(parts);
}

std::string Added(std::string name, std::string content) {
  Parts parts = GoodParts();
  parts.emplace_back(std::move(name), std::move(content));
  return Zip(parts);
}

/// Good bytes with one change at the n-th place where `mark` stands.
std::string Changed(std::string_view mark, int n, std::size_t offset, std::string_view bytes) {
  std::string zip = Zip(GoodParts());
  std::size_t at = zip.find(mark);
  for (; n > 0; --n) at = zip.find(mark, at + 1);
  zip.replace(at + offset, bytes.size(), bytes);
  return zip;
}

struct Case {
  std::string name;
  std::string bytes;
  ErrorCode code;
  std::string text;
};

std::vector<Case> Cases() {
  constexpr auto kCorrupt = ErrorCode::kCorrupt;
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  const std::string_view central = "PK\1\2";
  const std::string_view local = "PK\3\4";
  const std::string_view end = "PK\5\6";
  const std::string good = Zip(GoodParts());
  const std::string_view max4 = "\xff\xff\xff\xff";
  using namespace std::string_literals;
  // One statement a case: a single initializer of this size takes the compiler minutes.
  std::vector<Case> all;
  const auto add = [&all](const char* name, std::string content, ErrorCode code, const char* text) {
    all.push_back({name, std::move(content), code, text});
  };
  add("empty", "", kCorrupt, "no end record");
  add("no_zip", std::string(1000, 'x'), kCorrupt, "no end record");
  add("only_end_record", good.substr(good.size() - 22), kCorrupt, "outside its file");
  add("bytes_after_the_end", good + "x", kCorrupt, "no end record");
  add("bytes_before_the_end_record", good.substr(0, good.size() - 22) + "x" + good.substr(good.size() - 22), kCorrupt, "bytes lie between");
  add("one_of_two_disks", Changed(end, 0, 4, "\x01\x00\x01\x00"s), kCorrupt, "several disks");
  add("directory_beyond_end", Changed(end, 0, 16, max4), kCorrupt, "outside its file");
  add("directory_size_too_large", Changed(end, 0, 12, "\xff\xff\xff\x7f"), kCorrupt, "outside its file");
  add("more_entries_than_records", Changed(end, 0, 8, "\x09\x00\x09\x00"s), kCorrupt, "ends early");
  add("bad_record_magic", Changed(central, 1, 0, "PK\1\3"), kCorrupt, "malformed");
  add("record_name_too_long", Changed(central, 3, 28, "\xff\xff"), kCorrupt, "ends early");
  add("deflated", Changed(central, 2, 10, "\x08\x00"s), kUnsupported, "compressed");
  add("encrypted", Changed(central, 2, 8, "\x01\x00"s), kUnsupported, "encrypted");
  add("two_sizes", Changed(central, 2, 20, "\x01\x00\x00\x00"s), kCorrupt, "two sizes");
  add("entry_past_directory", Changed(central, 2, 20, "\xff\x00\x00\x00\xff\x00\x00\x00"s), kCorrupt, "past the data");
  add("zip64_marker_without_field", Changed(central, 2, 20, "\xff\xff\xff\xff\xff\xff\xff\xff"), kCorrupt, "past the data");
  add("header_offset_outside", Changed(central, 0, 42, max4), kCorrupt, "bytes that it does not have");
  add("no_local_header", Changed(local, 0, 0, "PK\3\5"), kCorrupt, "no header");
  add("local_name_differs", Changed(local, 0, 30, "brchive"), kCorrupt, "called otherwise");
  add("local_name_too_long", Changed(local, 0, 26, "\xff\xff"), kCorrupt, "bytes that it does not have");
  add("outside_the_folder", Changed(central, 1, 46, "brchive"), kCorrupt, "outside the folder");
  add("entry_twice", Added("data/0", "again"), kCorrupt, "twice");
  add("big_endian", With("byteorder", "big"), kUnsupported, "`big`");
  add("odd_byteorder", With("byteorder", "middle"), kUnsupported, "`middle`");
  add("torchscript", Added("constants.pkl", "x"), kUnsupported, "TorchScript");
  add("tar", std::string(257, 'x') + "ustar" + std::string(300, 'x'), kUnsupported, "tar");
  add("no_pickle", Without("data.pkl"), kCorrupt, "data.pkl");
  add("no_storage", Without("data/0"), kCorrupt, "data/0");
  add("empty_pickle", With("data.pkl", ""), kCorrupt, "ends before");
  add("cut_pickle", With("data.pkl", TensorPickle(6, 0, {2, 3}, {3, 1}).substr(0, 60)), kCorrupt, "ends before");
  add("short_storage", With("data/0", std::string(23, 'x')), kCorrupt, "shorter than its tensors say");
  add("view_past_the_end", With("data.pkl", TensorPickle(6, 1, {2, 3}, {3, 1})), kCorrupt, "past the end");
  add("stride_past_the_end", With("data.pkl", TensorPickle(6, 0, {2, 3}, {4, 1})), kCorrupt, "past the end");
  add("stride_overflows", With("data.pkl", TensorPickle(6, 0, {2, 3}, {INT64_MAX, 1})), kCorrupt, "past the end");
  add("negative_offset", With("data.pkl", TensorPickle(6, -1, {2, 3}, {3, 1})), kCorrupt, "negative offset");
  add("negative_stride", With("data.pkl", TensorPickle(6, 5, {2, 3}, {-3, -1})), kCorrupt, "negative stride");
  add("negative_size", With("data.pkl", TensorPickle(6, 0, {-2, 3}, {3, 1})), kCorrupt, "negative size");
  add("negative_numel", With("data.pkl", TensorPickle(-6, 0, {2, 3}, {3, 1})), kCorrupt, "persistent id");
  add("numel_overflows", With("data.pkl", TensorPickle(INT64_MAX, 0, {2, 3}, {3, 1})), kCorrupt, "shorter than its tensors say");
  add("ranks_differ", With("data.pkl", TensorPickle(6, 0, {2, 3}, {1})), kCorrupt, "malformed");
  return all;
}

class BrokenTorchFile : public ::testing::TestWithParam<Case> {};

TEST_P(BrokenTorchFile, IsRefused) {
  const BytesFile file(GetParam().bytes);
  EXPECT_THAT(ReadTorchFile(file, {0, file.size()}), IsError(GetParam().code, HasSubstr(GetParam().text)));
}

INSTANTIATE_TEST_SUITE_P(ByName, BrokenTorchFile, ::testing::ValuesIn(Cases()),
                         [](const auto& row) { return row.param.name; });

TEST(BrokenTorchFiles, TheGoodOneIsReadSoThatTheOthersFailForTheirReason) {
  const BytesFile file(Zip(GoodParts()));
  EXPECT_THAT(ReadTorchFile(file, {0, file.size()}), IsOk());
}

TEST(BrokenTorchFiles, WrongCrcsAreNoError) {  // torch itself may write other values there
  const BytesFile file(Changed("PK\1\2", 2, 16, "abcd"));
  EXPECT_THAT(ReadTorchFile(file, {0, file.size()}), IsOk());
}

TEST(BrokenTorchFiles, HugeExpandedTensorsAreNotLoaded) {
  const BytesFile file(With("data.pkl", TensorPickle(6, 0, {1 << 30, 1 << 30}, {0, 0})));
  ASSERT_OK_AND_ASSIGN(TorchFile torch, ReadTorchFile(file, {0, file.size()}));
  EXPECT_THAT(LoadAllTensors(file, torch, 1 << 20), IsError(ErrorCode::kUnsupported, HasSubstr("too large")));
}

TEST(BrokenTorchFiles, OldFormStoragesMustBeAsTheTensorsSay) {
  std::string old = ReadGolden("torch_zip/legacy_views.pt");
  const std::size_t last = old.rfind(std::string("\x1c\0\0\0\0\0\0\0", 8));  // 28 elements
  ASSERT_NE(last, std::string::npos);
  old[last] = '\x1d';
  const BytesFile file(old);
  EXPECT_THAT(ReadTorchFile(file, {0, file.size()}), IsError(ErrorCode::kCorrupt, HasSubstr("storage")));
}

}  // namespace
}  // namespace crossdock::formats::torch_zip
