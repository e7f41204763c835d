// SPDX-License-Identifier: Apache-2.0
#include "convert/source.h"

#include "convert/demo_model.h"
#include "result_matchers.h"
#include "verify/verify.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

TEST(Source, DropsOptimizerStateAndSaysSo) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  dialects::HubState& hub = model.source.hub;
  const std::size_t before = hub.tensors.size();
  DropOptimizer(&hub);
  EXPECT_EQ(hub.tensors.size(), before / 4);
  ASSERT_EQ(hub.left_out.size(), 1U);
  EXPECT_EQ(hub.left_out[0].reason, "left behind by --no-optim");
  EXPECT_EQ(hub.left_out[0].count, static_cast<std::int64_t>(before / 4 * 3));
  EXPECT_TRUE(hub.optimizer.empty());
  EXPECT_FALSE(hub.counters.adam_count.has_value());
  EXPECT_TRUE(hub.counters.step.has_value());
}

TEST(Source, RefusesOneMomentWithoutTheOther) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  dialects::HubState& hub = model.source.hub;
  std::erase_if(hub.tensors, [](const auto& t) { return t.name == "model.norm.weight" && t.slot == Slot::kAdamNu; });
  EXPECT_THAT(CheckMoments(&hub), IsError(ErrorCode::kIncomplete, StrEq(
      "a parameter has one Adam moment but not the other, tensor `model.norm.weight`; expected `adam_mu` and `adam_nu`, "
      "found `adam_mu` only\nhint: `--no-optim` converts the parameters alone")));
}

TEST(Source, ListsParametersWithoutState) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  dialects::HubState& hub = model.source.hub;
  std::erase_if(hub.tensors, [](const auto& t) { return t.name == "model.norm.weight" && t.slot != Slot::kParam; });
  ASSERT_THAT(CheckMoments(&hub), IsOk());
  ASSERT_FALSE(hub.notices.empty());
  EXPECT_EQ(hub.notices.back(), "1 parameters have no optimizer state: `model.norm.weight`");
}

TEST(Source, BeginsMissingMomentsWithZerosWhenAllowed) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  dialects::HubState& hub = model.source.hub;
  const std::size_t before = hub.tensors.size();
  ASSERT_THAT(FillMissingMoments(&hub), IsOk());
  EXPECT_EQ(hub.tensors.size(), before);  // nothing was missing
  std::erase_if(hub.tensors, [](const auto& t) { return t.name == "model.norm.weight" && t.slot != Slot::kParam; });
  ASSERT_THAT(FillMissingMoments(&hub), IsOk());
  ASSERT_EQ(hub.tensors.size(), before);
  const verify::Side side{model.source.storage, model.source.reader.get(), &hub, "demo"};
  for (const dialects::HubTensor& t : hub.tensors) {
    if (t.name != "model.norm.weight" || t.slot == Slot::kParam) continue;
    ASSERT_OK_AND_ASSIGN(const std::string bytes, verify::EvaluateBox(side, t, Box::Whole(t.shape)));
    EXPECT_EQ(bytes == std::string(4U * 64U, '\0'), t.slot != Slot::kMaster) << SlotName(t.slot);
  }
  DropOptimizer(&hub);
  ASSERT_THAT(FillMissingMoments(&hub), IsOk());
  EXPECT_EQ(hub.tensors.size(), before / 4);  // without any state there is none to complete
}

TEST(Source, ComparesTiedTensors) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  const Catalog& catalog = model.source.reader->catalog();
  const std::int32_t embedding = catalog.Find("param/model.embed_tokens.weight");
  const std::int32_t head = catalog.Find("param/lm_head.weight");
  EXPECT_THAT(CheckTiedPair(model.source, 1 << 20), IsOk());  // an untied model has no pair
  model.source.hub.tied = dialects::TiedPair{embedding, embedding};
  EXPECT_THAT(CheckTiedPair(model.source, 1 << 14), IsOk());
  model.source.hub.tied = dialects::TiedPair{embedding, head};
  EXPECT_THAT(CheckTiedPair(model.source, 1 << 14),
              IsError(ErrorCode::kCorrupt, HasSubstr("config.json ties the head to the embedding, but the two differ")));
  model.source.hub.tied = dialects::TiedPair{embedding, catalog.Find("param/model.norm.weight")};
  EXPECT_THAT(CheckTiedPair(model.source, 1 << 14), IsError(ErrorCode::kCorrupt, HasSubstr("BF16 [64] against BF16 [1000, 64]")));
}

TEST(Source, KnowsFamiliesByName) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  SourceRequest request;
  request.family = "gpt5";
  EXPECT_THAT(ReadSourceHub(request, &model.source), IsError(ErrorCode::kUsage, HasSubstr("there is no family `gpt5`")));
}

TEST(Source, RefusesATemplateWithoutConfig) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "t"), IsOk());
  EXPECT_THAT(ReadTemplate(storage, "t"), IsError(ErrorCode::kIncomplete, StrEq(
      "the template has no config.json, in `t/config.json`\nhint: `--hf-template` names a Hugging Face model directory")));
  ASSERT_THAT(io::WriteSmallFile(storage, "t/config.json", R"({"a": 1, "a": 2})"), IsOk());
  EXPECT_THAT(ReadTemplate(storage, "t"), IsError(ErrorCode::kCorrupt, HasSubstr("duplicate key `a`, in `t/config.json`")));
}

}  // namespace
}  // namespace crossdock::convert
