// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/full_state.h"

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Value Metadata(const char* format = "crossdock-full-state-v1") {
  Value out = Value::MakeDict();
  out.Set("format", Value(format));
  out.Set("optimizer", Value("adam"));
  out.Set("consumed_train_samples", Value("640"));
  return out;
}

Catalog FullState() {
  Catalog out = TinyModel("param/");
  for (const Entry& entry : TinyModel().entries) {
    for (const Slot slot : {Slot::kMaster, Slot::kAdamMu, Slot::kAdamNu}) Add(&out, FullStateName(slot, entry.name), entry.shape, DType::kF32);
  }
  out.objects["__metadata__"] = Metadata();
  out.objects["meta"] = Value::MakeDict({{Value("meta/step"), Value(20)}, {Value("meta/adam_count"), Value(19)}});
  return out;
}

TEST(ReadFullState, TakesAllSlotsAndCounters) {
  const Catalog source = FullState();
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadFullState(source, {}));
  EXPECT_EQ(hub.tensors.size(), source.entries.size());
  EXPECT_NE(FindHub(hub, "model.norm.weight", Slot::kAdamNu), nullptr);
  EXPECT_EQ(hub.counters.step, 20);
  EXPECT_EQ(hub.counters.adam_count, 19);
  EXPECT_EQ(hub.counters.muon_count, std::nullopt);
  EXPECT_EQ(hub.counters.consumed_train_samples, 640);
  EXPECT_EQ(hub.optimizer, "adam");
}

TEST(ReadFullState, GivesFlatMomentsTheirShape) {
  Catalog source = FullState();
  const std::string name = "optim/adam_mu/model.layers.0.mlp.down_proj.weight";
  Remove(&source, name);
  Add(&source, name, {96}, DType::kF32);
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadFullState(source, {}));
  EXPECT_EQ(FindHub(hub, "model.layers.0.mlp.down_proj.weight", Slot::kAdamMu)->expr->shape, (Shape{8, 12}));
  Remove(&source, name);
  Add(&source, name, {95}, DType::kF32);
  EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kCorrupt, ::testing::AllOf(HasSubstr("[96]"), HasSubstr("[95]"))));
}

TEST(ReadFullState, RefusesOtherFormats) {
  Catalog source = FullState();
  source.objects["__metadata__"] = Metadata("crossdock-full-state-v2");
  EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kUnsupported, HasSubstr("crossdock-full-state-v2")));
  source.objects["__metadata__"] = Metadata();
  source.objects["__metadata__"].Set("model_name", Value("gemma3"));
  EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kCorrupt, HasSubstr("gemma3")));
  source.objects.erase("__metadata__");
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadFullState(source, {}));
  EXPECT_THAT(hub.notices, Contains(HasSubstr("no full-state format")));
}

/// Matrices of layers with Muon's momentum, as the other converter writes them: no masters.
Catalog LingState() {
  Catalog source = FullState();
  for (const Entry& entry : TinyModel().entries) {
    Remove(&source, FullStateName(Slot::kMaster, entry.name));
    if (entry.shape.size() != 2 || entry.name.find(".layers.") == std::string::npos) continue;
    for (const Slot slot : {Slot::kAdamMu, Slot::kAdamNu}) Remove(&source, FullStateName(slot, entry.name));
    Add(&source, FullStateName(Slot::kMuonMu, entry.name), entry.shape, DType::kF32);
  }
  source.objects["__metadata__"] = Metadata("ling3-muon-full-state-v1");
  source.objects["__metadata__"].Set("optimizer", Value("muon"));
  source.objects["__metadata__"].Set("model_name", Value("ling3-tiny"));
  source.objects["__metadata__"].Set("step", Value("20"));
  source.objects["meta"].Set("meta/muon_count", Value(18));
  return source;
}

TEST(LingFullState, ComesBackAsItWas) {
  const Catalog source = LingState();
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadFullState(source, {}));
  EXPECT_EQ(hub.counters.muon_count, 18);
  TargetOptions options;
  options.consumer = "ling3";
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteFullState(hub, options));
  ASSERT_EQ(target.catalog.entries.size(), source.entries.size());
  for (std::size_t i = 0; i < source.entries.size(); ++i) EXPECT_EQ(target.catalog.entries[i].name, source.entries[i].name);
  EXPECT_TRUE(target.catalog.objects.at("__metadata__").Equals(source.objects.at("__metadata__"))) << ToJson(target.catalog.objects.at("__metadata__"), 0);
  EXPECT_TRUE(target.catalog.objects.at("meta").Equals(source.objects.at("meta")));
}

TEST(LingFullState, HasNoPlaceForMastersAndSettings) {
  Catalog source = LingState();
  Add(&source, "optim/master/model.norm.weight", {8}, DType::kF32);
  ASSERT_OK_AND_ASSIGN(HubState hub, ReadFullState(source, {}));
  hub.extras = Json(R"({"lr": 0.5})");
  TargetOptions options;
  options.consumer = "ling3";
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteFullState(hub, options));
  ASSERT_EQ(target.left_out.size(), 2U);
  EXPECT_EQ(target.left_out[0].name, "master weights");
  EXPECT_EQ(target.left_out[1].name, "scheduler and optimizer settings");
  EXPECT_EQ(target.catalog.objects.at("__metadata__").Find("crossdock_extras"), nullptr);
  options.params_from_master = true;
  ASSERT_OK_AND_ASSIGN(const TargetState masters, WriteFullState(hub, options));
  EXPECT_EQ(masters.catalog.entries[static_cast<std::size_t>(masters.catalog.Find("param/model.norm.weight"))].dtype, DType::kF32);
}

TEST(LingFullState, WhatItsReaderWouldRefuseIsRefused) {
  TargetOptions options;
  options.consumer = "ling3";
  ASSERT_OK_AND_ASSIGN(HubState hub, ReadFullState(LingState(), {}));
  hub.counters.adam_count.reset();
  EXPECT_THAT(WriteFullState(hub, options), IsError(ErrorCode::kIncomplete, HasSubstr("meta/adam_count")));
  ASSERT_OK_AND_ASSIGN(hub, ReadFullState(FullState(), {}));
  EXPECT_THAT(WriteFullState(hub, options), IsError(ErrorCode::kIncomplete, HasSubstr("Muon's momentum")));
  for (const char* key : {"model_name", "optimizer"}) {
    Catalog source = LingState();
    source.objects["__metadata__"].Erase(key);
    EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kCorrupt, HasSubstr(key)));
  }
}

TEST(ReadFullState, RefusesCountersItCannotPlace) {
  Catalog source = FullState();
  source.objects["meta"].Set("meta/other", Value(1));
  EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kUnsupported, HasSubstr("meta/other")));
  source = FullState();
  source.objects["__metadata__"].Set("step", Value("21"));
  EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kCorrupt, ::testing::AllOf(HasSubstr("21"), HasSubstr("20"))));
  source.objects["__metadata__"].Set("step", Value("twenty"));
  EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kCorrupt, HasSubstr("twenty")));
  source = FullState();
  Add(&source, "meta/step", {2}, DType::kI64);  // not what the reader takes for a counter
  EXPECT_THAT(ReadFullState(source, {}), IsError(ErrorCode::kUnsupported, HasSubstr("meta/step")));
}

TEST(ReadFullState, RefusesStateOfUnknownParameters) {
  Catalog source = FullState();
  Add(&source, "optim/adam_mu/nobody", {2}, DType::kF32);
  Add(&source, "optim/novel/model.norm.weight", {8}, DType::kF32);
  EXPECT_THAT(ReadFullState(source, {}),
              IsError(ErrorCode::kUnsupported, ::testing::AllOf(HasSubstr("optim/adam_mu/nobody"), HasSubstr("optim/novel/model.norm.weight"))));
}

TEST(FullState, ComesBackAsItWas) {
  const Catalog source = FullState();
  ASSERT_OK_AND_ASSIGN(HubState hub, ReadFullState(source, {}));
  hub.extras = Json(R"({"lr": 0.5, "betas": [0.9, 0.95]})");
  hub.extras_words = "mcore";
  ASSERT_OK_AND_ASSIGN(TargetState target, WriteFullState(hub, {}));
  ASSERT_EQ(target.catalog.entries.size(), source.entries.size());
  for (std::size_t i = 0; i < source.entries.size(); ++i) {
    EXPECT_EQ(target.catalog.entries[i].name, source.entries[i].name);
    EXPECT_EQ(expr::LeafOrdinals(target.exprs[i]), std::vector<int>{static_cast<int>(i)});
  }
  EXPECT_TRUE(target.catalog.objects.at("meta").Equals(source.objects.at("meta")));
  ASSERT_OK_AND_ASSIGN(const HubState back, ReadFullState(target.catalog, {}));
  EXPECT_EQ(back.counters, hub.counters);
  EXPECT_EQ(back.optimizer, "adam");
  EXPECT_TRUE(back.extras.Equals(hub.extras));
  EXPECT_EQ(back.extras_words, "mcore");
}

TEST(FullState, LeavesTheStateOfATiedHead) {
  Catalog source = FullState();
  source.objects["config.json"].Set("tie_word_embeddings", Value(true));
  ASSERT_OK_AND_ASSIGN(const HubState hub, ReadFullState(source, {}));
  EXPECT_TRUE(hub.tied.has_value());
  EXPECT_EQ(FindHub(hub, "lm_head.weight", Slot::kAdamMu), nullptr);
  EXPECT_EQ(hub.left_out.size(), 2U);
}

}  // namespace
}  // namespace crossdock::dialects::hf
