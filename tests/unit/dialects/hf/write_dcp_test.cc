// SPDX-License-Identifier: Apache-2.0
#include "dcp_model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const Entry* Find(const TargetState& target, std::string_view name) {
  const std::int32_t at = target.catalog.Find(name);
  return at < 0 ? nullptr : &target.catalog.entries[static_cast<std::size_t>(at)];
}

TEST(WriteDcp, NamesKeysAsGetStateDictDoes) {
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(TinyDcp("", "x."), {}, false));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteDcp(hub, {}));
  EXPECT_NE(Find(target, "model.lm_head.weight"), nullptr);
  EXPECT_NE(Find(target, "optim.state.model.norm.weight.exp_avg_sq"), nullptr);
  const auto& objects = target.catalog.objects;
  ASSERT_TRUE(objects.contains("scalar:optim.state.model.norm.weight.step"));
  EXPECT_EQ(*objects.at("scalar:optim.state.model.norm.weight.step").as_tensor()->bytes, std::string("\0\0\x40\x40", 4));
  EXPECT_EQ(*objects.at("object:optim.param_groups.0.lr").as_float(), 0.5);
  const Value* path = objects.at("planner_data").Find("optim.param_groups.0.lr");
  ASSERT_NE(path, nullptr);
  EXPECT_TRUE(path->Equals(Value::MakeTuple({Value("optim"), Value("param_groups"), Value(0), Value("lr")})));
  // Each key of the checkpoint has its path.
  std::size_t keys = target.catalog.entries.size();
  for (const auto& [name, value] : objects) keys += name.starts_with("scalar:") || name.starts_with("object:") ? 1U : 0U;
  EXPECT_EQ(objects.at("planner_data").as_dict()->items.size(), keys);
  EXPECT_THAT(target.load_line, Contains(HasSubstr("optim")));
}

TEST(WriteDcp, ATiedHeadIsWrittenTwice) {
  Catalog source = TinyModel("");
  source.objects["config.json"].Set("tie_word_embeddings", Value(true));
  Remove(&source, "lm_head.weight");
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteDcp(hub, {}));
  EXPECT_NE(Find(target, "model.lm_head.weight"), nullptr);
  EXPECT_EQ(target.exprs[static_cast<std::size_t>(target.catalog.Find("model.lm_head.weight"))],
            target.exprs[static_cast<std::size_t>(target.catalog.Find("model.model.embed_tokens.weight"))]);
}

TEST(WriteDcp, MastersBecomeParametersOrAreNamed) {
  ASSERT_OK_AND_ASSIGN(HubState hub, ReadHub(TinyModel(""), {}));
  HubTensor master = *FindHub(hub, "model.norm.weight");
  master.slot = Slot::kMaster;
  master.dtype = DType::kF32;
  master.expr = expr::Leaf(99, DType::kF32, master.shape);
  hub.tensors.push_back(master);
  ASSERT_OK_AND_ASSIGN(const TargetState plain, WriteDcp(hub, {}));
  EXPECT_EQ(Find(plain, "model.model.norm.weight")->dtype, DType::kBF16);
  ASSERT_EQ(plain.left_out.size(), 1U);
  EXPECT_EQ(plain.left_out[0].name, "master weights");
  EXPECT_THAT(plain.notices, Contains(HasSubstr("--params-from master")));
  TargetOptions options;
  options.params_from_master = true;
  ASSERT_OK_AND_ASSIGN(const TargetState exact, WriteDcp(hub, options));
  EXPECT_EQ(Find(exact, "model.model.norm.weight")->dtype, DType::kF32);
  EXPECT_TRUE(exact.left_out.empty());
}

TEST(WriteDcp, LargeTensorsAreCutIntoRowsAndFilesAreFilled) {
  Catalog source = TinyModel("");
  Value& config = source.objects["config.json"];
  config.Set("vocab_size", Value(std::int64_t{100'000'000}));
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    Remove(&source, name);
    Add(&source, name, {100'000'000, 8});
  }
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
  TargetOptions options;
  options.max_shard_bytes = 1'000'000'000;
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteDcp(hub, options));
  const Entry* head = Find(target, "model.lm_head.weight");
  ASSERT_NE(head, nullptr);
  ASSERT_EQ(head->chunks.size(), 3U);  // 1.6 GB by 512 MiB
  std::vector<Box> boxes;
  for (const Chunk& chunk : head->chunks) boxes.push_back(chunk.box);
  EXPECT_THAT(CheckCover(head->shape, boxes), IsOk());
  EXPECT_EQ(head->chunks[0].shard, 0);
  EXPECT_EQ(head->chunks[2].shard, 2);
}

TEST(WriteDcp, RefusesWhatHasNoForm) {
  ASSERT_OK_AND_ASSIGN(HubState hub, ReadHub(TinyModel(""), {}));
  TargetOptions options;
  options.params_from_master = true;
  EXPECT_THAT(WriteDcp(hub, options), IsError(ErrorCode::kIncomplete, HasSubstr("no master weights")));
  HubTensor moment = *FindHub(hub, "model.norm.weight");
  moment.slot = Slot::kMuonMu;
  hub.tensors.push_back(moment);
  EXPECT_THAT(WriteDcp(hub, {}), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("matrices"), HasSubstr("model.norm.weight"))));
  hub.tensors.back().slot = Slot::kAdamMu;
  EXPECT_THAT(WriteDcp(hub, {}), IsError(ErrorCode::kUsage, HasSubstr("Adam's step")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
