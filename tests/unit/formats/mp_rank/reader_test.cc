// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"
#include "formats/mp_rank/mp_rank.h"
#include "formats/torch_zip/torch_file.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/dcp/stored_tensor.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::mp_rank {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string GoldenDir(const std::string& name) {
  return std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/mp_rank/" + name + "/iter_0000005";
}

/// The tensor at a path of an object, whether text, integer or index.
const TensorValue* At(const Value& value, const std::vector<Value>& path) {
  const Value* at = &value;
  for (const Value& key : path) {
    const Value* next = nullptr;
    if (const ValueList* items = at->as_sequence()) next = &items->at(static_cast<std::size_t>(*key.as_int()));
    if (const Value::Dict* dict = at->as_dict()) {
      for (const auto& [k, v] : dict->items) {
        if (k.Equals(key)) next = &v;
      }
    }
    if (next == nullptr) return nullptr;
    at = next;
  }
  return at->as_tensor();
}

class GoldenMpRank : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenMpRank, EveryTensorIsReadAsTorchSeesIt) {  // user cases B12, B78
  const Value all = ReadExpected("mp_rank");
  const Value& expected = *all.Find(GetParam());
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenMpRank(*storage, GoldenDir(GetParam())));
  const Catalog& catalog = reader->catalog();
  EXPECT_EQ(catalog.format, "mp_rank");
  EXPECT_EQ(catalog.step, 5);
  std::size_t small = 0;
  for (const auto& [key, want] : expected.as_dict()->items) {
    const std::string& name = *key.as_string();
    const std::int32_t index = catalog.Find(name);
    if (index < 0) {
      ++small;
      EXPECT_TRUE(name.ends_with("/step") || name.ends_with("/scale") || name.ends_with("torch_rng_state") || name.ends_with(".empty")) << name;
      continue;
    }
    const Entry& entry = catalog.entries[static_cast<std::size_t>(index)];
    EXPECT_EQ(DTypeName(entry.dtype), want.GetString("dtype").value());
    EXPECT_TRUE(Value::MakeList(ValueList(entry.shape.begin(), entry.shape.end())).Equals(*want.Find("shape"))) << name;
    std::vector<Box> boxes;
    for (const Chunk& chunk : entry.chunks) boxes.push_back(chunk.box);
    EXPECT_THAT(CheckCover(entry.shape, boxes), IsOk()) << name;
    ASSERT_OK_AND_ASSIGN(const std::string data, ReadWhole(*storage, *reader, index));
    EXPECT_EQ(Sha256Hex(data), want.GetString("sha256").value()) << name;
  }
  EXPECT_EQ(catalog.entries.size() + small, expected.as_dict()->items.size());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenMpRank, ::testing::Values("views", "adam"), [](const auto& row) { return std::string(row.param); });

TEST(MpRankReader, KeepsObjectsInOrderWithTheirTensorsNamed) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenMpRank(*storage, GoldenDir("views")));
  const Catalog& catalog = reader->catalog();
  const Value& first = catalog.objects.at("mp_rank_00_000/model_optim_rng.pt");
  std::vector<std::string> names;
  for (const auto& [key, value] : first.Find("model")->as_dict()->items) names.push_back(*key.as_string());
  EXPECT_THAT(names, ElementsAre("embedding.word_embeddings.weight", "decoder.layers.0.transposed.weight", "decoder.layers.0.columns.weight",
                                 "decoder.layers.0.rows.weight", "decoder.layers.0.every.weight", "decoder.layers.0._extra_state",
                                 "decoder.layers.0.scalar", "decoder.layers.0.empty", "output_layer.weight"));
  const TensorValue* head = At(first, {Value("model"), Value("output_layer.weight")});
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->storage, "mp_rank_00_000/model_optim_rng.pt#model/output_layer.weight");
  EXPECT_EQ(head->bytes, nullptr);
  EXPECT_EQ(first.GetInt("args.pipeline_model_parallel_size"), 2);
  const TensorValue* random = At(first, {Value("rng_state"), Value(0), Value("torch_rng_state")});
  ASSERT_NE(random, nullptr);
  ASSERT_NE(random->bytes, nullptr);
  EXPECT_EQ(random->bytes->size(), 40U);
  EXPECT_TRUE(catalog.objects.contains("mp_rank_00_001/model_optim_rng.pt"));
  EXPECT_THAT(catalog.notices, ElementsAre(AllOf(HasSubstr("`mp_rank_00_000/layer_wise_optimizer_0.pt` is not read"), HasSubstr("Muon"))));
}

TEST(MpRankReader, LoadsTheStepsAndTheScaler) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenMpRank(*storage, GoldenDir("adam")));
  const Value& object = reader->catalog().objects.at("mp_rank_00/model_optim_rng.pt");
  const TensorValue* step = At(object, {Value("optimizer"), Value("optimizer"), Value("state"), Value(1), Value("step")});
  ASSERT_NE(step, nullptr);
  ASSERT_NE(step->bytes, nullptr);
  EXPECT_EQ(*step->bytes, std::string("\0\0\xA0\x40", 4));
  const TensorValue* scale = At(object, {Value("optimizer"), Value("grad_scaler"), Value("scale")});
  ASSERT_NE(scale, nullptr);
  EXPECT_NE(scale->bytes, nullptr);
  EXPECT_GE(reader->catalog().Find("mp_rank_00/distrib_optim.pt#0/(torch.bfloat16, torch.float32)/param"), 0);
}

std::unique_ptr<io::MemoryStorage> With(const Value& value) {
  auto storage = std::make_unique<io::MemoryStorage>();
  EXPECT_THAT(io::MakeDirs(*storage, "/c/iter_0000001/mp_rank_00"), IsOk());
  const auto bytes = torch_zip::WriteTorchFile(value, "model_optim_rng");
  EXPECT_THAT(bytes, IsOk());
  EXPECT_THAT(io::WriteSmallFile(*storage, "/c/iter_0000001/mp_rank_00/model_optim_rng.pt", *bytes), IsOk());
  return storage;
}

Value Bytes(std::int64_t count) {
  TensorValue t;
  t.dtype = DType::kU8;
  t.shape = {count};
  t.strides = {1};
  t.storage_numel = count;
  t.bytes = std::make_shared<std::string>(static_cast<std::size_t>(count), 'x');
  return Value(t);
}

TEST(MpRankReader, RefusesEqualPathsAndLargeState) {
  const auto twice = With(Value::MakeDict({{Value("model"), Value::MakeDict({{Value(1), Bytes(2)}, {Value("1"), Bytes(2)}})}}));
  EXPECT_THAT(OpenMpRank(*twice, "/c/iter_0000001"),
              IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("the same path"), HasSubstr("mp_rank_00/model_optim_rng.pt#model/1"))));
  const auto large = With(Value::MakeDict({{Value("rng_state"), Bytes((1 << 20) + 1)}}));
  EXPECT_THAT(OpenMpRank(*large, "/c/iter_0000001"), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("rng_state"), HasSubstr("1048576"))));
}

TEST(MpRankReader, HoldsAHundredThousandTensors) {
  ValueDict items;
  for (int i = 0; i < 100'000; ++i) items.emplace_back(Value("decoder.layers." + std::to_string(i) + ".weight"), Bytes(3));
  const auto storage = With(Value::MakeDict({{Value("model"), Value::MakeDict(std::move(items))}}));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenMpRank(*storage, "/c/iter_0000001"));
  EXPECT_EQ(reader->catalog().entries.size(), 100'000U);
}

TEST(MpRankReader, SaysWhichFileIsBroken) {
  const auto storage = With(Value(1));
  EXPECT_THAT(storage->RemoveFile("/c/iter_0000001/mp_rank_00/model_optim_rng.pt"), IsOk());
  EXPECT_THAT(io::WriteSmallFile(*storage, "/c/iter_0000001/mp_rank_00/model_optim_rng.pt", "no torch file"), IsOk());
  EXPECT_THAT(OpenMpRank(*storage, "/c/iter_0000001"), IsError(ErrorCode::kCorrupt, HasSubstr("mp_rank_00/model_optim_rng.pt")));
}

}  // namespace
}  // namespace crossdock::formats::mp_rank
