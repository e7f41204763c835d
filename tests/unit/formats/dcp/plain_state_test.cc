// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/plain_state.h"

#include "base/sha256.h"
#include "formats/dcp/dcp.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/dcp/stored_tensor.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string Golden() { return std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/dcp_plain/fsdp2"; }

/// The key that get_state_dict gives to a hub tensor.
std::string KeyOf(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const std::string hub = name.substr(slash + 1);
  if (name.starts_with("param/")) return "model." + hub;
  return "optim.state." + hub + (name.starts_with("optim/adam_mu/") ? ".exp_avg" : ".exp_avg_sq");
}

TEST(PlainDcp, EveryTensorOfFsdp2IsReadBitForBit) {
  const Value expected = *ReadExpected("dcp_plain").Find("fsdp2");
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenPlainDcp(*storage, Golden()));
  ASSERT_EQ(reader->catalog().entries.size(), expected.as_dict()->items.size());
  for (const auto& [key, want] : expected.as_dict()->items) {
    const std::int32_t at = reader->catalog().Find(KeyOf(*key.as_string()));
    ASSERT_GE(at, 0) << *key.as_string();
    EXPECT_EQ(reader->catalog().entries[static_cast<std::size_t>(at)].chunks.size(), 2U);
    ASSERT_OK_AND_ASSIGN(const std::string data, ReadWhole(*storage, *reader, at));
    EXPECT_EQ(Sha256Hex(data), want.GetString("sha256").value()) << *key.as_string();
  }
}

TEST(PlainDcp, StepsAndSettingsAreValues) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenPlainDcp(*storage, Golden()));
  const auto& objects = reader->catalog().objects;
  EXPECT_EQ(objects.at("scalars").as_dict()->items.size(), 11U);
  ASSERT_NE(objects.at("scalars").Find("optim.state.model.norm.weight.step"), nullptr);
  EXPECT_EQ(*objects.at("scalars").Find("optim.state.model.norm.weight.step")->as_float(), 2.0);
  EXPECT_EQ(*objects.at("items").Find("optim.param_groups.0.lr")->as_float(), 3e-3);
  EXPECT_TRUE(objects.at("items").Find("optim.param_groups.0.betas")->Equals(Value::MakeTuple({Value(0.8), Value(0.95)})));
  EXPECT_EQ(objects.at("config.json").GetInt("vocab_size"), 17);
}

Catalog Target() {
  Catalog target;
  Entry& entry = target.entries.emplace_back(Entry{.name = "model.a.b", .dtype = DType::kU8, .shape = {3}, .chunks = {}});
  entry.chunks.emplace_back().box = Box::Whole({3});
  TensorValue step;
  step.storage = "0";
  step.storage_numel = 1;
  step.bytes = std::make_shared<std::string>("\0\0\x40\x40", 4);  // 3.0
  target.objects["scalar:optim.state.a.b.step"] = Value(step);
  target.objects["object:optim.param_groups.0.lr"] = Value(0.5);
  target.objects["planner_data"] = Value::MakeDict({{Value("model.a.b"), Value::MakeTuple({Value("model"), Value("a.b")})},
                                                    {Value("optim.param_groups.0.lr"), Value::MakeTuple({Value("optim"), Value(0)})}});
  return target;
}

TEST(PlainDcp, ScalarsItemsAndPathsAreWrittenAndNothingOfMegatron) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "run/out"), IsOk());
  const auto writer = MakeDcpWriter(DcpFlavour::kPlain);
  ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(Target()));
  ASSERT_EQ(placement.catalog.files.size(), 1U);
  std::string bytes(static_cast<std::size_t>(placement.catalog.files[0].identity.size), '?');
  const auto put = [&](const Frame& frame) { bytes.replace(static_cast<std::size_t>(frame.offset), frame.bytes.size(), frame.bytes); };
  for (const Frame& frame : placement.frames) put(frame);
  ASSERT_OK_AND_ASSIGN(const auto sealed, writer->Seal(placement.catalog, 0, 0, 0));
  for (const Frame& frame : sealed) put(frame);
  ASSERT_THAT(io::WriteSmallFile(storage, "run/out/__0_0.distcp", bytes), IsOk());
  ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "run/out"), IsOk());
  EXPECT_FALSE(io::Exists(storage, "run/out/metadata.json"));
  ASSERT_OK_AND_ASSIGN(const std::string metadata, io::ReadSmallFile(storage, "run/out/.metadata"));
  EXPECT_THAT(metadata, HasSubstr("planner_data"));

  ASSERT_THAT(io::WriteSmallFile(storage, "run/config.json", R"({"vocab_size": 4})"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "run/tokenizer.json", "{}"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenPlainDcp(storage, "run/out"));
  const Catalog& found = reader->catalog();
  ASSERT_EQ(found.entries.size(), 1U);
  EXPECT_EQ(found.entries[0].name, "model.a.b");
  EXPECT_EQ(*found.objects.at("scalars").Find("optim.state.a.b.step")->as_float(), 3.0);
  EXPECT_EQ(*found.objects.at("items").Find("optim.param_groups.0.lr")->as_float(), 0.5);
}

TEST(PlainDcp, ConfigurationAndTokenizerOfTheDirectoryAboveServe) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/run/out"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "/run/config.json", R"({"vocab_size": 4})"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "/run/tokenizer.json", "{}"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "/run/weights.bin", "x"), IsOk());
  Catalog catalog;
  ASSERT_THAT(dcp::LoadModelFiles(storage, "/run/out", catalog), IsOk());
  EXPECT_EQ(catalog.objects.at("config.json").GetInt("vocab_size"), 4);
  EXPECT_THAT(catalog.notices, Contains(HasSubstr("directory above")));
  ASSERT_EQ(catalog.side_files.size(), 1U);
  EXPECT_EQ(catalog.side_files[0].path, "tokenizer.json");
  ASSERT_THAT(io::WriteSmallFile(storage, "/run/out/config.json", R"([])"), IsOk());
  EXPECT_THAT(dcp::LoadModelFiles(storage, "/run/out", catalog), IsError(ErrorCode::kCorrupt, HasSubstr("no JSON object")));
}

}  // namespace
}  // namespace crossdock::formats
