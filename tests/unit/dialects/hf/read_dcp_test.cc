// SPDX-License-Identifier: Apache-2.0
#include "dcp_model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReadDcp, TakesWeightsMomentsAndStep) {
  const Catalog source = TinyDcp();
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(source, {}, false));
  EXPECT_EQ(hub.tensors.size(), source.entries.size());
  const HubTensor* mu = FindHub(hub, "model.norm.weight", Slot::kAdamMu);
  ASSERT_NE(mu, nullptr);
  EXPECT_EQ(source.entries[static_cast<std::size_t>(mu->expr->leaf)].name, "optim.state.model.norm.weight.exp_avg");
  const HubTensor* param = FindHub(hub, "model.norm.weight");
  ASSERT_NE(param, nullptr);
  EXPECT_EQ(source.entries[static_cast<std::size_t>(param->expr->leaf)].name, "model.model.norm.weight");
  EXPECT_EQ(hub.counters.adam_count, 3);
  EXPECT_EQ(hub.counters.step, std::nullopt);
  EXPECT_EQ(hub.optimizer, "adam");
  EXPECT_EQ(hub.extras_words, "torch");
  EXPECT_THAT(hub.notices, Contains(AllOf(HasSubstr("under `model.`"), HasSubstr("`optim.state.`"))));
}

TEST(ReadDcp, FindsTheLevelByTheNames) {
  for (const char* prefix : {"", "state_dict.model.", "app.model.", "module."}) {
    ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(TinyDcp(prefix, "app.optimizer."), {}, false));
    EXPECT_NE(FindHub(hub, "model.norm.weight", Slot::kAdamNu), nullptr) << prefix;
    EXPECT_THAT(hub.notices, Contains(HasSubstr("the weights are taken to be the keys")));
  }
}

TEST(ReadDcp, RemovesWrappersAndSaysSo) {
  Catalog source = TinyModel("model._orig_mod.");
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(source, {}, false));
  EXPECT_NE(FindHub(hub, "lm_head.weight"), nullptr);
  EXPECT_THAT(hub.notices, Contains(HasSubstr("wrapper's word")));
  EXPECT_EQ(hub.optimizer, "");
}

TEST(ReadDcp, RefusesStepsThatDiffer) {
  Catalog source = TinyDcp();
  source.objects["scalars"].Set("optim.state.lm_head.weight.step", Value(4.0));
  EXPECT_THAT(ReadDcp(source, {}, false), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("different steps"), HasSubstr("--no-optim"))));
  EXPECT_THAT(ReadDcp(source, {}, true), IsOk());
  source.objects["scalars"].Set("optim.state.lm_head.weight.step", Value(3.5));
  EXPECT_THAT(ReadDcp(source, {}, false), IsError(ErrorCode::kCorrupt, HasSubstr("no whole number")));
}

TEST(ReadDcp, StateByNumberIsNotCarried) {
  Catalog source = TinyModel("model.");
  Add(&source, "optim.state.0.exp_avg", {10, 8}, DType::kF32);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(source, {}, false));
  EXPECT_THAT(hub.optimizer_refusal, HasSubstr("get_state_dict"));
  ASSERT_EQ(hub.left_out.size(), 1U);
  EXPECT_THAT(WriteDcp(hub, {}), IsError(ErrorCode::kUnsupported, HasSubstr("--no-optim")));
}

TEST(ReadDcp, RefusesTwoSetsOfWeights) {
  Catalog source = TinyModel("model.");
  for (const Entry& entry : TinyModel("ema.").entries) Add(&source, entry.name, entry.shape);
  EXPECT_THAT(ReadDcp(source, {}, false), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("`ema.`"), HasSubstr("`model.`"))));
}

TEST(ReadDcp, RefusesUnknownStateButNotRandomState) {
  Catalog source = TinyDcp();
  Add(&source, "rng.torch", {5056}, DType::kU8);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(source, {}, false));
  ASSERT_EQ(hub.left_out.size(), 1U);
  EXPECT_EQ(hub.left_out[0].name, "rng.torch");
  Add(&source, "optim.state.lm_head.weight.max_exp_avg_sq", {10, 8}, DType::kF32);
  EXPECT_THAT(ReadDcp(source, {}, false), IsError(ErrorCode::kUnsupported, HasSubstr("max_exp_avg_sq")));
  EXPECT_THAT(ReadDcp(source, {}, true), IsOk());
}

TEST(ReadDcp, NeedsAConfigurationOrATemplate) {
  Catalog source = TinyDcp();
  source.objects.erase("config.json");
  EXPECT_THAT(ReadDcp(source, {}, false), IsError(ErrorCode::kIncomplete, HasSubstr("--hf-template")));
  ReadOptions options;
  options.template_config = family::ModelConfig{"hf", TinyConfig()};
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(source, options, false));
  EXPECT_EQ(hub.model.letters.at("v"), 10);
}

TEST(ReadDcp, RefusesMegatronNamesAndForeignOnes) {
  Catalog megatron = TinyModel("model.");
  Add(&megatron, "model.module.decoder.layers.0.self_attention.linear_qkv.weight", {8, 8});
  EXPECT_THAT(ReadDcp(megatron, {}, false), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("none of its trainer's"), HasSubstr("torch_dist"))));
  Catalog foreign;
  foreign.objects["config.json"] = TinyConfig();
  Add(&foreign, "tok_embeddings.weight", {10, 8});
  EXPECT_THAT(ReadDcp(foreign, {}, false), IsError(ErrorCode::kIncomplete, HasSubstr("tok_embeddings.weight")));
  Catalog optimizer = TinyDcp();
  std::erase_if(optimizer.entries, [](const Entry& e) { return e.name.starts_with("model."); });
  EXPECT_THAT(ReadDcp(optimizer, {}, false), IsError(ErrorCode::kIncomplete, HasSubstr("no weights")));
}

TEST(ReadDcp, ATiedHeadIsComparedAndStandsOnce) {
  Catalog source = TinyDcp();
  source.objects["config.json"].Set("tie_word_embeddings", Value(true));
  for (const char* ending : {".exp_avg", ".exp_avg_sq"}) Remove(&source, std::string("optim.state.lm_head.weight") + ending);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(source, {}, false));
  EXPECT_EQ(FindHub(hub, "lm_head.weight"), nullptr);
  ASSERT_TRUE(hub.tied.has_value());
  EXPECT_EQ(source.entries[static_cast<std::size_t>(hub.tied->head)].name, "model.lm_head.weight");
  EXPECT_EQ(source.entries[static_cast<std::size_t>(hub.tied->embedding)].name, "model.model.embed_tokens.weight");
}

TEST(ReadDcp, ObjectsOfTheScriptAreNamed) {
  Catalog source = TinyDcp();
  source.object_refs.push_back({"dataloader", 0, {0, 10}});
  source.object_refs.push_back({"optim.param_groups.0.lr", 0, {10, 10}});
  source.objects["items"].Set("train_state.step", Value(70));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadDcp(source, {}, false));
  ASSERT_EQ(hub.left_out.size(), 1U);
  EXPECT_EQ(hub.left_out[0].name, "dataloader");
  EXPECT_EQ(hub.counters.step, 70);
}

}  // namespace
}  // namespace crossdock::dialects::hf
