// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"
#include "formats/dcp/dcp.h"
#include "result_matchers.h"
#include "unit/formats/dcp/stored_tensor.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string GoldenDir(const std::string& name) {
  return std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/dcp/" + name + "/iter_0000020";
}

class GoldenDcp : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenDcp, EveryTensorIsReadBitForBit) {
  const Value expected = *ReadExpected("dcp").Find(GetParam());
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenDcp(*storage, GoldenDir(GetParam())));
  const Catalog& catalog = reader->catalog();
  EXPECT_EQ(catalog.format, "dcp");
  EXPECT_EQ(catalog.step, 20);
  for (const auto& [key, want] : expected.Find("tensors")->as_dict()->items) {
    const std::string& name = *key.as_string();
    const std::int32_t index = catalog.Find(name);
    ASSERT_GE(index, 0) << name;
    const Entry& entry = catalog.entries[static_cast<std::size_t>(index)];
    EXPECT_EQ(DTypeName(entry.dtype), want.GetString("dtype").value());
    EXPECT_TRUE(Value::MakeList(ValueList(entry.shape.begin(), entry.shape.end())).Equals(*want.Find("shape"))) << name;
    ASSERT_OK_AND_ASSIGN(const std::string data, ReadWhole(*storage, *reader, index));
    EXPECT_EQ(Sha256Hex(data), want.GetString("sha256").value()) << name;
  }
  EXPECT_EQ(catalog.entries.size(), expected.Find("tensors")->as_dict()->items.size());
}

TEST_P(GoldenDcp, TheCommonStateAndItsArgumentsAreThere) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenDcp(*storage, GoldenDir(GetParam())));
  const auto& objects = reader->catalog().objects;
  ASSERT_TRUE(objects.contains("common"));
  EXPECT_EQ(objects.at("common").GetInt("iteration"), 20);
  EXPECT_EQ(objects.at("common").GetInt("args.hidden_size"), 16);
  EXPECT_EQ(objects.at("metadata.json").GetString("sharded_backend"), "torch_dist");
}

TEST_P(GoldenDcp, EveryObjectIsReadable) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenDcp(*storage, GoldenDir(GetParam())));
  for (const ObjectRef& ref : reader->catalog().object_refs) {
    EXPECT_NE(ref.name, "common_state/shard_0_1");
    ASSERT_OK_AND_ASSIGN(const Value value, reader->LoadObject(ref));
    EXPECT_NE(value.as_sequence(), nullptr) << ref.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenDcp, ::testing::Values("adam_tp2_pp2", "numbered_pp2", "old_0_12", "old_0_12_flat"),
                         [](const auto& row) { return std::string(row.param); });

TEST(DcpReader, FlattenedOptimizerShardsAreNamedAndKeepTheirStoredShape) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenDcp(*storage, GoldenDir("old_0_12_flat")));
  EXPECT_EQ(reader->catalog().flattened_entries.size(), 27U);
  EXPECT_THAT(reader->catalog().flattened_entries, Each(HasSubstr("optimizer.state.")));
  const std::string fc1 = "optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight";
  EXPECT_THAT(reader->catalog().flattened_entries, Contains(fc1));
  EXPECT_EQ(reader->catalog().entries[static_cast<std::size_t>(reader->catalog().Find(fc1))].shape, (Shape{2, 4, 1, 192}));
  ASSERT_OK_AND_ASSIGN(const auto plain, OpenDcp(*storage, GoldenDir("old_0_12")));
  EXPECT_THAT(plain->catalog().flattened_entries, IsEmpty());
}

TEST(DcpReader, AnEmptyDirectoryIsIncomplete) {
  const auto storage = io::MakeLocalStorage();
  EXPECT_THAT(OpenDcp(*storage, std::string(CROSSDOCK_SOURCE_DIR) + "/cmake"), IsError(ErrorCode::kIncomplete, HasSubstr(".metadata")));
}

}  // namespace
}  // namespace crossdock::formats
