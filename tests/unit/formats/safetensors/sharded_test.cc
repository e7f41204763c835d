// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "formats/safetensors/safetensors.h"
#include "result_matchers.h"
#include "test_files.h"

namespace crossdock::formats::safetensors {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFirst = "/m/shard-00001-model-00001-of-00001.safetensors";
constexpr const char* kSecond = "/m/shard-00002-model-00001-of-00001.safetensors";

/// One tensor `a` of bytes; `sharding` is the text of DCP_SHARDING_INFO.
std::string Part(Shape shape, const std::string& sharding, DType dtype = DType::kU8) {
  const std::int64_t size = CheckedCount(shape) * BitsOf(dtype) / 8;
  return PrintHeader(std::vector<HeaderTensor>{{"a", dtype, shape, {0, size}}}, {{"DCP_SHARDING_INFO", sharding}}) + std::string(static_cast<std::size_t>(size), '*');
}
std::string At(const std::string& offsets) { return R"({"a": {"saved_offsets": )" + offsets + "}}"; }

TEST(ShardedSafetensors, PartsOfRanksAreChunksOfOneTensor) {
  io::MemoryStorage storage;
  Put(storage, kFirst, Part({2, 3}, At("[0, 0]")));
  Put(storage, kSecond, Part({1, 3}, At("[2, 0]")));
  Put(storage, "/m/config.json", R"({"model_type": "x"})");
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenShardedSafetensors(storage, "/m"));
  const Catalog& catalog = reader->catalog();
  ASSERT_EQ(catalog.entries.size(), 1U);
  EXPECT_EQ(catalog.entries[0].shape, (Shape{3, 3}));
  ASSERT_EQ(catalog.entries[0].chunks.size(), 2U);
  EXPECT_EQ(catalog.entries[0].chunks[1].box, (Box{{2, 0}, {1, 3}}));
  EXPECT_EQ(catalog.entries[0].chunks[1].file, 1);
  ASSERT_OK_AND_ASSIGN(const ByteRange range, reader->Locate(0, 1));
  EXPECT_EQ(range.length, 3);
  EXPECT_TRUE(catalog.objects.contains("config.json"));
}

TEST(ShardedSafetensors, ReplicatedAndEmptyPartsCountOnce) {
  io::MemoryStorage storage;
  Put(storage, kFirst, Part({2}, At("[0]")));
  Put(storage, kSecond, Part({2}, At("[0]")));
  Put(storage, "/m/shard-00003-model-00001-of-00001.safetensors", Part({0}, At("[2]")));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenShardedSafetensors(storage, "/m"));
  ASSERT_EQ(reader->catalog().entries[0].chunks.size(), 1U);
  EXPECT_EQ(reader->catalog().entries[0].chunks[0].file, 0);
}

struct BrokenCase {
  const char* name;
  std::string second;
  const char* says;
  ErrorCode code = ErrorCode::kCorrupt;
};
void PrintTo(const BrokenCase& c, std::ostream* out) { *out << c.name; }
class BrokenShards : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(BrokenShards, IsRefused) {
  io::MemoryStorage storage;
  Put(storage, kFirst, Part({2}, At("[0]")));
  Put(storage, kSecond, GetParam().second);
  EXPECT_THAT(OpenShardedSafetensors(storage, "/m"), IsError(GetParam().code, HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(All, BrokenShards,
                         ::testing::Values(BrokenCase{"Gap", Part({1}, At("[3]")), "a rank's file is missing", ErrorCode::kIncomplete},
                                           BrokenCase{"Overlap", Part({2}, At("[1]")), "a rank's file is missing"},
                                           BrokenCase{"NoInformation", TinyFile({"a"}), "does not say where"},
                                           BrokenCase{"NoTensor", Part({1}, "{}"), "no usable place"},
                                           BrokenCase{"OtherRank", Part({1}, At("[2, 0]")), "no usable place"},
                                           BrokenCase{"Negative", Part({1}, At("[-1]")), "no usable place"},
                                           BrokenCase{"Text", Part({1}, At("[\"2\"]")), "no usable place"},
                                           BrokenCase{"Huge", Part({1}, At("[9223372036854775807]")), "beyond any shape"},
                                           BrokenCase{"OtherType", Part({1}, At("[2]"), DType::kF32), "do not belong together"},
                                           BrokenCase{"OtherAxes", Part({1, 1}, At("[2, 0]")), "do not belong together"},
                                           BrokenCase{"NoJson", Part({1}, "{"), "line"}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ShardedSafetensors, OnlyNamesOfThatFormCount) {
  EXPECT_TRUE(IsShardName("shard-00001-model-00001-of-00002.safetensors"));
  EXPECT_FALSE(IsShardName("model-00001-of-00002.safetensors"));
  EXPECT_FALSE(IsShardName("shard-0001-model-000001-of-00002.safetensors"));
  EXPECT_FALSE(IsShardName("shard-00001-model-00001-of-0000x.safetensors"));
}

TEST(ShardedSafetensors, ReadsTheGoldenDirectory) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenShardedSafetensors(*storage, GoldenDir() + "/dcp_plain/safetensors"));
  const std::int32_t at = reader->catalog().Find("model.embed_tokens.weight");
  ASSERT_GE(at, 0);
  EXPECT_EQ(reader->catalog().entries[static_cast<std::size_t>(at)].shape, (Shape{17, 12}));
  EXPECT_EQ(reader->catalog().entries[static_cast<std::size_t>(at)].chunks.size(), 2U);
}

}  // namespace
}  // namespace crossdock::formats::safetensors
