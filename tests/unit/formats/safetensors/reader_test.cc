// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/safetensors/safetensors.h"
#include "result_matchers.h"
#include "test_files.h"

namespace crossdock::formats::safetensors {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Names(const Catalog& catalog) {
  std::vector<std::string> names;
  for (const Entry& entry : catalog.entries) names.push_back(entry.name);
  return names;
}

TEST(SafetensorsReader, ReadsTheGoldenDirectory) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(*storage, GoldenDir() + "/hf/qwen3"));
  const Catalog& catalog = reader->catalog();
  ASSERT_OK_AND_ASSIGN(const std::string text, io::ReadSmallFile(*storage, GoldenDir() + "/hf/expected.json"));
  ASSERT_OK_AND_ASSIGN(const Value expected, ParseJson(text));
  ASSERT_EQ(catalog.entries.size(), expected.as_dict()->items.size());
  for (const auto& [key, info] : expected.as_dict()->items) {
    const std::int32_t at = catalog.Find(*key.as_string());
    ASSERT_GE(at, 0) << *key.as_string();
    const Entry& entry = catalog.entries[static_cast<std::size_t>(at)];
    EXPECT_EQ(DTypeName(entry.dtype), info.GetString("dtype"));
    EXPECT_EQ(catalog.files[static_cast<std::size_t>(entry.chunks[0].file)].path, info.GetString("file"));
    ASSERT_EQ(entry.shape.size(), info.Find("shape")->as_sequence()->size());
    ASSERT_OK_AND_ASSIGN(const ByteRange range, reader->Locate(at, 0));
    EXPECT_EQ(range, entry.chunks[0].bytes);
  }
  EXPECT_EQ(catalog.objects.at("config.json").GetString("model_type"), "qwen3");
  EXPECT_EQ(catalog.objects.at("__metadata__").GetString("format"), "pt");
  std::vector<std::string> side;
  for (const SideFile& file : catalog.side_files) side.push_back(file.path);
  EXPECT_THAT(side, ElementsAre("chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json"));
  EXPECT_THAT(catalog.notices, IsEmpty());
}

TEST(SafetensorsReader, LoadsCountersOfFullStateFiles) {
  io::MemoryStorage storage;
  std::vector<HeaderTensor> tensors = {{"meta/step", DType::kI64, {}, {0, 8}}, {"param/a", DType::kU8, {1}, {8, 1}}};
  Put(storage, "/m/model.safetensors",
      PrintHeader(tensors, {{"format", "crossdock-full-state-v1"}}) + std::string("\x07\0\0\0\0\0\0\0*", 9));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/m"));
  EXPECT_THAT(Names(reader->catalog()), ElementsAre("param/a"));
  EXPECT_EQ(*reader->catalog().objects.at("meta").Find("meta/step")->as_int(), 7);
  EXPECT_EQ(reader->catalog().step, 7);
  EXPECT_TRUE(LooksFullState(storage, "/m"));
}

TEST(SafetensorsReader, KeepsMetaTensorsOfOtherFiles) {
  io::MemoryStorage storage;
  Put(storage, "/m/model.safetensors", PrintHeader(std::vector<HeaderTensor>{{"meta/x", DType::kI64, {}, {0, 8}}}, {}) + std::string(8, '\0'));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/m"));
  EXPECT_THAT(Names(reader->catalog()), ElementsAre("meta/x"));
  EXPECT_FALSE(LooksFullState(storage, "/m"));
}

TEST(SafetensorsReader, ReportsStraysAndReadsWhatTheIndexNames) {
  io::MemoryStorage storage;
  Put(storage, "/m/model-00001-of-00001.safetensors", TinyFile({"a"}));
  Put(storage, "/m/old.safetensors", TinyFile({"a"}));
  Put(storage, "/m/model.safetensors", TinyFile({"a"}));
  Put(storage, "/m/pytorch_model.bin", "x");
  Put(storage, "/m/model.safetensors.index.json", R"({"weight_map":{"a":"model-00001-of-00001.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/m"));
  EXPECT_THAT(Names(reader->catalog()), ElementsAre("a"));
  EXPECT_THAT(reader->catalog().notices, Contains(HasSubstr("`old.safetensors`, `pytorch_model.bin`")));
  EXPECT_THAT(reader->catalog().notices, Contains(HasSubstr("transformers would read that file alone")));
}

TEST(SafetensorsReader, WarnsOfAnIndexThatIsNotQuiteRight) {
  io::MemoryStorage storage;
  Put(storage, "/m/s-1.safetensors", TinyFile({"a", "c"}));
  Put(storage, "/m/s-2.safetensors", TinyFile({"b"}));
  Put(storage, "/m/model.safetensors.index.json",
      R"({"metadata":{"total_size":99},"weight_map":{"a":"s-1.safetensors","b":"s-1.safetensors","d":"s-2.safetensors"}})");
  EXPECT_THAT(OpenSafetensors(storage, "/m"), IsError(ErrorCode::kIncomplete, HasSubstr("1 tensor (`d`)")));
  Put(storage, "/n/s-1.safetensors", TinyFile({"a", "c"}));
  Put(storage, "/n/s-2.safetensors", TinyFile({"b", "e"}));
  Put(storage, "/n/model.safetensors.index.json",
      R"({"metadata":{"total_size":99},"weight_map":{"a":"s-1.safetensors","b":"s-1.safetensors","e":"s-2.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/n"));
  EXPECT_THAT(reader->catalog().notices, Contains(HasSubstr("wrong file for 1 tensor (`b`)")));
  EXPECT_THAT(reader->catalog().notices, Contains(HasSubstr("1 tensors are in the files but not in the index")));
  EXPECT_THAT(reader->catalog().notices, Contains(HasSubstr("total_size 99, the files hold 4 bytes")));
}

TEST(SafetensorsReader, ReadsAWholeNumberedSetWithoutIndex) {
  io::MemoryStorage storage;
  Put(storage, "/m/model-00001-of-00002.safetensors", TinyFile({"a"}));
  Put(storage, "/m/model-00002-of-00002.safetensors", TinyFile({"b"}));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/m"));
  EXPECT_THAT(Names(reader->catalog()), ElementsAre("a", "b"));
}

/// Enough files for several threads: two batches and a rest on most machines.
TEST(SafetensorsReader, ReadsManyFilesInTheirOrder) {
  io::MemoryStorage storage;
  const int kFiles = 29;
  const auto file = [=](int i) { return fmt::format("model-{:05}-of-{:05}.safetensors", i, kFiles); };
  for (int i = 1; i <= kFiles; ++i) {
    Put(storage, "/m/" + file(i), PrintHeader(std::vector<HeaderTensor>{{fmt::format("t{:02}", i), DType::kU8, {1}, {0, 1}}}, {}) + "*");
  }
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/m"));
  const Catalog& catalog = reader->catalog();
  ASSERT_EQ(catalog.files.size(), 29U);
  ASSERT_EQ(catalog.entries.size(), 29U);
  for (std::size_t i = 0; i < 29; ++i) {
    EXPECT_EQ(catalog.files[i].path, file(static_cast<int>(i) + 1));
    EXPECT_EQ(catalog.entries[i].name, fmt::format("t{:02}", i + 1));
    EXPECT_EQ(catalog.entries[i].chunks[0].file, static_cast<std::int32_t>(i));
  }
  // Of two broken files the first is named, whichever thread came to an end first.
  for (const int i : {21, 20}) {
    ASSERT_TRUE(storage.RemoveFile("/m/" + file(i)));
    Put(storage, "/m/" + file(i), "short");
  }
  const auto broken = OpenSafetensors(storage, "/m");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().path, "/m/" + file(20));
}

TEST(SafetensorsReader, PassesOverForeignWeights) {
  io::MemoryStorage storage;
  Put(storage, "/m/model.safetensors", TinyFile({"a"}));
  Put(storage, "/m/consolidated.safetensors", TinyFile({"b"}));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/m"));
  EXPECT_THAT(Names(reader->catalog()), ElementsAre("a"));
  EXPECT_THAT(reader->catalog().notices, Contains(HasSubstr("consolidated.safetensors")));
}

TEST(SafetensorsReader, ReadsOneFileOrOneIndexByPath) {
  io::MemoryStorage storage;
  Put(storage, "/m/x.safetensors", TinyFile({"a"}));
  Put(storage, "/m/y.safetensors", TinyFile({"b"}));
  Put(storage, "/m/y.safetensors.index.json", R"({"weight_map":{"b":"y.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const auto file, OpenSafetensors(storage, "/m/x.safetensors"));
  EXPECT_THAT(Names(file->catalog()), ElementsAre("a"));
  EXPECT_THAT(file->catalog().side_files, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const auto index, OpenSafetensors(storage, "/m/y.safetensors.index.json"));
  EXPECT_THAT(Names(index->catalog()), ElementsAre("b"));
}

class HubCache : public ::testing::Test {
 protected:
  void SetUp() override {
    namespace fs = std::filesystem;
    std::string pattern = (fs::path(::testing::TempDir()) / "crossdock-cache-XXXXXX").string();  // two runs may work at once
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = fs::path(pattern) / "models--org--name";
    fs::create_directories(root_ / "refs");
    Put(*storage_, (root_ / "blobs/1234").string(), TinyFile({"a"}));
    Put(*storage_, (root_ / "blobs/5678").string(), "{\"model_type\": \"x\"}");
    Put(*storage_, (root_ / "blobs/9abc").string(), "license");
    fs::create_directories(root_ / "snapshots/c0ffee");
    fs::create_symlink("../../blobs/1234", root_ / "snapshots/c0ffee/model.safetensors");
    fs::create_symlink("../../blobs/5678", root_ / "snapshots/c0ffee/config.json");
    fs::create_symlink("../../blobs/9abc", root_ / "snapshots/c0ffee/LICENSE");
    Put(*storage_, (root_ / "refs/main").string(), "c0ffee\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_.parent_path()); }

  std::filesystem::path root_;
  std::unique_ptr<io::Storage> storage_ = io::MakeLocalStorage();
};

TEST_F(HubCache, IsReadThroughItsLinks) {
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(*storage_, root_.string()));
  EXPECT_THAT(Names(reader->catalog()), ElementsAre("a"));
  EXPECT_EQ(reader->catalog().objects.at("config.json").GetString("model_type"), "x");
  ASSERT_EQ(reader->catalog().side_files.size(), 1U);
  EXPECT_EQ(reader->catalog().side_files[0].path, "LICENSE");
  EXPECT_EQ(reader->catalog().side_files[0].size, 7);
}

TEST_F(HubCache, MissingSnapshotIsIncomplete) {
  std::filesystem::remove_all(root_ / "snapshots/c0ffee");
  EXPECT_THAT(OpenSafetensors(*storage_, root_.string()), IsError(ErrorCode::kIncomplete, HasSubstr("snapshot")));
}

TEST_F(HubCache, WithoutARefOneSnapshotIsReadAndSeveralAreNamed) {
  std::filesystem::remove(root_ / "refs/main");
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(*storage_, root_.string()));
  EXPECT_THAT(Names(reader->catalog()), ElementsAre("a"));
  std::filesystem::create_directories(root_ / "snapshots/facade");
  EXPECT_THAT(OpenSafetensors(*storage_, root_.string()),
              IsError(ErrorCode::kIncomplete, ::testing::AllOf(HasSubstr("`c0ffee`, `facade`"), HasSubstr("under `snapshots`"))));
}

TEST_F(HubCache, RefThatLeavesTheCacheIsUnsafe) {
  std::filesystem::remove(root_ / "refs/main");
  Put(*storage_, (root_ / "refs/main").string(), "../../..");
  EXPECT_THAT(OpenSafetensors(*storage_, root_.string()), IsError(ErrorCode::kUnsafe, HasSubstr("refs/main")));
}

TEST_F(HubCache, DanglingSideFileNamesLinkAndTarget) {
  std::filesystem::remove(root_ / "blobs/9abc");
  EXPECT_THAT(OpenSafetensors(*storage_, root_.string()),
              IsError(ErrorCode::kIncomplete, ::testing::AllOf(HasSubstr("LICENSE"), HasSubstr("../../blobs/9abc"))));
}

}  // namespace
}  // namespace crossdock::formats::safetensors
