// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "formats/safetensors/safetensors.h"
#include "result_matchers.h"
#include "test_files.h"

namespace crossdock::formats::safetensors {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The same tensors, not yet placed.
Catalog Unplaced(const Catalog& source) {
  Catalog out;
  out.entries = source.entries;
  for (Entry& entry : out.entries) entry.chunks = {Chunk{Box::Whole(entry.shape), -1, {}, ChunkEncoding::kRaw, 0}};
  return out;
}

Catalog CatalogOf(const std::vector<std::pair<std::string, std::int64_t>>& sizes) {
  Catalog out;
  for (const auto& [name, size] : sizes) {
    Entry entry;
    entry.name = name;
    entry.dtype = DType::kU8;
    entry.shape = {size};
    entry.chunks = {Chunk{Box::Whole(entry.shape), -1, {}, ChunkEncoding::kRaw, 0}};
    out.entries.push_back(std::move(entry));
  }
  out.SortEntries();
  return out;
}

/// Which tensors each file of a placement holds.
std::vector<std::string> Shards(const Placement& placement) {
  std::vector<std::string> out(placement.catalog.files.size());
  for (const Entry& entry : placement.catalog.entries) out[static_cast<std::size_t>(entry.chunks[0].file)] += entry.name;
  return out;
}

class GoldenFile : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenFile, IsWrittenAgainByteForByte) {
  const auto storage = io::MakeLocalStorage();
  const std::string path = GoldenDir() + "/safetensors/" + GetParam();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(*storage, path));
  WriterOptions options;
  options.metadata.clear();
  if (const auto metadata = reader->catalog().objects.find("__metadata__"); metadata != reader->catalog().objects.end()) {
    for (const auto& [key, value] : metadata->second.as_dict()->items) options.metadata.emplace_back(*key.as_string(), *value.as_string());
  }
  const auto writer = MakeSafetensorsWriter(options);
  ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(Unplaced(reader->catalog())));
  EXPECT_FALSE(placement.wants_crc32);
  EXPECT_THAT(writer->MetadataFiles(), IsEmpty());
  const auto files = FilesOf(placement, *storage, reader->catalog());
  ASSERT_OK_AND_ASSIGN(const std::string golden, io::ReadSmallFile(*storage, path));
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.begin()->first, "model.safetensors");
  EXPECT_TRUE(files.begin()->second == golden);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFile,
                         ::testing::Values("dtypes.safetensors", "dtypes_pt.safetensors", "empty.safetensors", "empty_pt.safetensors",
                                           "f4.safetensors", "huge_empty.safetensors", "metadata_text.safetensors",
                                           "model.safetensors", "names.safetensors", "one_byte.safetensors"));

TEST(SafetensorsWriter, WritesTheGoldenDirectoryByteForByte) {
  const auto local = io::MakeLocalStorage();
  const std::string dir = GoldenDir() + "/hf/qwen3";
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(*local, dir));
  WriterOptions options;
  options.max_shard_bytes = 12'000;
  options.order = {"model.embed_tokens.weight"};  // torch's order of modules
  for (int layer = 0; layer < 4; ++layer) {
    for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
                             "self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm",
                             "post_attention_layernorm"}) {
      options.order.push_back("model.layers." + std::to_string(layer) + "." + part + ".weight");
    }
  }
  options.order.insert(options.order.end(), {"model.norm.weight", "lm_head.weight"});
  const auto writer = MakeSafetensorsWriter(options);
  ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(Unplaced(reader->catalog())));
  for (const auto& [path, bytes] : FilesOf(placement, *local, reader->catalog())) {
    ASSERT_OK_AND_ASSIGN(const std::string golden, io::ReadSmallFile(*local, io::JoinPath(dir, path)));
    EXPECT_TRUE(bytes == golden) << path;
  }
  io::MemoryStorage target;
  ASSERT_THAT(io::MakeDirs(target, "/t"), IsOk());
  ASSERT_THAT(writer->WriteMetadata(placement.catalog, target, "/t"), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string index, io::ReadSmallFile(target, "/t/model.safetensors.index.json"));
  ASSERT_OK_AND_ASSIGN(const std::string golden, io::ReadSmallFile(*local, io::JoinPath(dir, "model.safetensors.index.json")));
  EXPECT_EQ(index, golden);
  ASSERT_EQ(writer->MetadataFiles().size(), 1U);
  EXPECT_EQ(writer->MetadataFiles()[0].identity.size, static_cast<std::int64_t>(golden.size()));
}

struct SplitCase {
  const char* name;
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::vector<std::string> order;
  std::vector<std::string> shards;
};
void PrintTo(const SplitCase& c, std::ostream* out) { *out << c.name; }
class ShardSplit : public ::testing::TestWithParam<SplitCase> {};

TEST_P(ShardSplit, IsGreedyInOrder) {
  WriterOptions options;
  options.max_shard_bytes = 10;
  options.order = GetParam().order;
  ASSERT_OK_AND_ASSIGN(const Placement placement, MakeSafetensorsWriter(options)->LayOut(CatalogOf(GetParam().sizes)));
  EXPECT_EQ(Shards(placement), GetParam().shards);
}

INSTANTIATE_TEST_SUITE_P(
    All, ShardSplit,
    ::testing::Values(SplitCase{"OneShard", {{"a", 4}, {"b", 6}}, {}, {"ab"}},
                      SplitCase{"Greedy", {{"a", 6}, {"b", 5}, {"c", 5}}, {}, {"a", "bc"}},
                      SplitCase{"ExactlyFull", {{"a", 10}, {"b", 10}}, {}, {"a", "b"}},
                      SplitCase{"TooLargeComesAtOnce", {{"a", 4}, {"b", 11}, {"c", 4}}, {}, {"b", "ac"}},
                      SplitCase{"OrderGiven", {{"a", 6}, {"b", 6}, {"c", 4}}, {"c", "a", "b"}, {"ac", "b"}},
                      SplitCase{"UnlistedFollowByName", {{"a", 6}, {"b", 4}, {"c", 6}}, {"c"}, {"c", "ab"}},
                      SplitCase{"EmptyTensors", {{"a", 0}, {"b", 10}, {"c", 0}}, {}, {"abc"}}, SplitCase{"Nothing", {}, {}, {""}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(SafetensorsWriter, NamesShardsAsTheLibraryDoes) {
  WriterOptions options;
  options.max_shard_bytes = 1;
  ASSERT_OK_AND_ASSIGN(const Placement placement, MakeSafetensorsWriter(options)->LayOut(CatalogOf({{"a", 1}, {"b", 1}})));
  EXPECT_EQ(placement.catalog.files[0].path, "model-00001-of-00002.safetensors");
  EXPECT_EQ(placement.catalog.files[1].path, "model-00002-of-00002.safetensors");
}

TEST(SafetensorsWriter, PutsCountersIntoFrames) {
  Catalog target = CatalogOf({{"param/a", 3}});
  target.objects["meta"] = Value::MakeDict({{Value("meta/step"), Value(7)}, {Value("meta/adam_count"), Value(-1)}});
  WriterOptions options;
  options.metadata = {{"format", "crossdock-full-state-v1"}};
  ASSERT_OK_AND_ASSIGN(const Placement placement, MakeSafetensorsWriter(options)->LayOut(std::move(target)));
  ASSERT_EQ(placement.catalog.entries.size(), 1U);
  io::MemoryStorage storage;
  std::string bytes(static_cast<std::size_t>(placement.catalog.files[0].identity.size), '*');
  for (const Frame& frame : placement.frames) bytes.replace(static_cast<std::size_t>(frame.offset), frame.bytes.size(), frame.bytes);
  Put(storage, "/m/model.safetensors", bytes);
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenSafetensors(storage, "/m"));
  EXPECT_TRUE(reader->catalog().objects.at("meta").Equals(
      Value::MakeDict({{Value("meta/step"), Value(7)}, {Value("meta/adam_count"), Value(-1)}})));
  EXPECT_EQ(reader->catalog().entries[0].chunks[0].bytes, placement.catalog.entries[0].chunks[0].bytes);
}

TEST(SafetensorsWriter, RefusesNamesThatNobodyCanRead) {
  EXPECT_THAT(MakeSafetensorsWriter({})->LayOut(CatalogOf({{"__metadata__", 1}})), IsError(ErrorCode::kUnsupported, HasSubstr("__metadata__")));
  EXPECT_THAT(MakeSafetensorsWriter({})->LayOut(CatalogOf({{"\xff", 1}})), IsError(ErrorCode::kUnsupported, HasSubstr("UTF-8")));
}

TEST(SafetensorsWriter, KeepsAFollowerInTheShardOfItsLeader) {
  Catalog target = CatalogOf({{"a", 40}, {"a_scale", 20}, {"b", 40}, {"b_scale", 70}, {"c", 30}});
  WriterOptions options;
  options.max_shard_bytes = 100;
  options.order = {"c", "a", "b"};
  options.follows = {{"a_scale", "a"}, {"b_scale", "b"}};
  const auto writer = MakeSafetensorsWriter(options);
  ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(std::move(target)));
  EXPECT_THAT(Shards(placement), ElementsAre("bb_scale", "aa_scalec"));  // b with its scale is too large for a shard that holds more
}

TEST(SafetensorsWriter, WritesAnIndexOfOneFileWhereItIsAskedFor) {
  WriterOptions options;
  options.always_index = true;
  const auto writer = MakeSafetensorsWriter(options);
  ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(CatalogOf({{"a", 40}})));
  const auto files = writer->MetadataFiles();
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].path, "model.safetensors.index.json");
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/d"), IsOk());
  ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "/d"), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string text, io::ReadSmallFile(storage, "/d/model.safetensors.index.json"));
  EXPECT_THAT(text, HasSubstr("\"a\": \"model.safetensors\""));
  EXPECT_EQ(static_cast<std::int64_t>(text.size()), files[0].identity.size);
}

}  // namespace
}  // namespace crossdock::formats::safetensors
