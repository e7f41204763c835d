// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/view.h"

#include "result_matchers.h"
#include "tunix_samples.h"

namespace crossdock::dialects::tunix {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

View See(const std::string& lines) {
  Result<View> made = SeeAsMaxText(Step(lines));
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().ToString());
  return made ? *std::move(made) : View();
}

/// Every leaf of the seen tree goes back to where it was.
void ExpectTheWayBack(const std::string& lines, const View& view) {
  const Catalog step = Step(lines);
  const Result<Levels> again = LevelsFrom(*ParseJson(ToJson(ToValue(view.levels), 0)));
  ASSERT_TRUE(again.has_value());
  std::set<std::string> back;
  for (const Value& row : *view.catalog.objects.at("tree").as_sequence()) {
    if (const auto path = StoredPath(*again, *row.Find("path")->as_sequence())) back.insert(maxtext::ArrayName(*path));
  }
  for (const auto& [name, constant] : again->dropped) back.insert((name.starts_with("model_params.") ? name : "optimizer_state." + name) + (again->value ? ".value" : ""));
  std::set<std::string> stored;
  for (const Value& row : *step.objects.at("tree").as_sequence()) {
    const std::string name = maxtext::ArrayName(*row.Find("path")->as_sequence());
    if (name.find("acc_grads") == std::string::npos) stored.insert(name);
  }
  EXPECT_EQ(back, stored);
}

TEST(TunixView, EveryTrainerGivesTheTreeOfPreTraining) {
  const std::map<std::string, std::string> trainers = {
      {"SFT", Params("") + kStep + Adam(kOptState + "0.", "") + kOptState + "2.count.value = 5\n"},
      {"SFT, clipped, wrapped", Params("base.") + kStep + Adam(kOptState + "1.0.", "base.") + kOptState + "1.2.count.value = 5\n"},
      {"RL", Params("base.") + kStep + Injected({"learning_rate"}) + Adam(kOptState + "inner_state.0.0.", "base.")},
      {"RL, clipped", Params("base.") + kStep + Injected({"learning_rate", "b1"}) + Adam(kOptState + "inner_state.1.0.", "base.")},
      {"distillation", Params("") + kStep + Injected({"learning_rate"}) + Adam(kOptState + "inner_state.0.", "")},
      {"chain of chains", Params("base.") + kStep + Adam(kOptState + "1.0.0.", "base.") + kOptState + "1.0.2.count.value = 5\n"},
      {"flat chain", Params("") + kStep + Adam(kOptState + "1.", "") + kOptState + "3.count.value = 5\n"},
      {"constant rate", Params("") + kStep + Adam(kOptState + "0.", "")},
      {"moments unwrapped", Params("base.") + kStep + Adam(kOptState + "0.", "") + kOptState + "2.count.value = 5\n"},
      {"gradients gathered", Params("") + kStep + Lines({kOptState + "mini_step.value = 0", kOptState + "gradient_step.value = 5", kOptState + "acc_grads." + kKernel + ".value"}) +
                                 Adam(kOptState + "inner_opt_state.0.", "") + kOptState + "inner_opt_state.2.count.value = 5\n"},
  };
  for (const auto& [trainer, lines] : trainers) {
    SCOPED_TRACE(trainer);
    const View view = See(lines);
    EXPECT_EQ(PathsOf(view.catalog), PreTraining());
    EXPECT_EQ(view.optimizer_refusal, "");
    EXPECT_EQ(view.catalog.objects.at("scalars").Find("step")->Find("values")->as_sequence()->front().as_int()[0], trainer == "gradients gathered" ? 5 : 7) << "updates of the model";
    ExpectTheWayBack(lines, view);
  }
}

TEST(TunixView, TheScheduleCountsWhereTheShellDid) {
  const auto count = [](const std::string& lines) {
    const View view = See(lines);
    const Value* row = view.catalog.objects.at("scalars").Find("opt_state.2.count");
    return row == nullptr ? -1 : *row->Find("values")->as_sequence()->front().as_int();
  };
  EXPECT_EQ(count(Params("") + kStep + Injected({"learning_rate"}) + Adam(kOptState + "inner_state.0.", "")), 6);
  EXPECT_EQ(count(Params("") + kStep + Adam(kOptState + "0.", "")), 5);
  EXPECT_EQ(count(Params("") + kStep + Adam(kOptState + "0.", "") + kOptState + "2.count.value = 8\n"), 8);
}

TEST(TunixView, AModuleNamedBaseKeepsItsName) {
  for (const std::string adapter : {"", "base."}) {
    const std::string own = "base.kernel.value\n";
    const std::string lines = Params(adapter) + "model_params." + adapter + own + kStep + Adam(kOptState + "0.", adapter) + kOptState + "0.mu." + adapter + own + kOptState + "0.nu." + adapter + own;
    const View view = See(lines);
    EXPECT_THAT(PathsOf(view.catalog), Contains("params.params.base.kernel"));
    EXPECT_THAT(PathsOf(view.catalog), Contains("opt_state.[0].mu.params.base.kernel"));
    EXPECT_THAT(PathsOf(view.catalog), Contains("params.params." + kKernel));
    ExpectTheWayBack(lines, view);
  }
}

TEST(TunixView, MuonKeepsItsGroupsAndPlaceholders) {
  const std::string muon = kOptState + "1.inner_states.muon.inner_state.";
  const std::string adam = kOptState + "1.inner_states.adam.inner_state.";
  const std::string lines = Params("base.") + kStep +
                            Lines({muon + "0.count.value = 5", muon + "0.ns_coeffs.value", muon + "0.mu.base." + kKernel + ".value", muon + "0.mu.base." + kTable + ".value None", muon + "3.count.value = 5",
                                   adam + "0.count.value = 5", adam + "0.mu.base." + kTable + ".value", adam + "0.mu.base." + kKernel + ".value None", adam + "0.nu.base." + kTable + ".value",
                                   adam + "0.nu.base." + kKernel + ".value None", adam + "2.count.value = 5"});
  const View view = See(lines);
  EXPECT_EQ(view.optimizer, maxtext::OptimizerKind::kMuon);
  EXPECT_THAT(PathsOf(view.catalog), Contains("opt_state.inner_states.muon.inner_state.0.mu." + kKernel));
  EXPECT_THAT(PathsOf(view.catalog), Contains("opt_state.inner_states.muon.inner_state.0.mu." + kTable + " None"));
  EXPECT_THAT(PathsOf(view.catalog), Contains("opt_state.inner_states.adam.inner_state.2.count"));
  ExpectTheWayBack(lines, view);
}

TEST(TunixView, AdaptersOfQwixAreNamed) {
  const std::string lines = "model_params.base.decoder.layers.mlp.wi_0.kernel_lora_a.value\nmodel_params.base.decoder.layers.mlp.wi_0.kernel_lora_b.value\n";
  EXPECT_TRUE(See(lines).lora_alone);
  EXPECT_FALSE(See(lines + Params("base.")).lora_alone);
  EXPECT_TRUE(See(lines + Params("base.")).has_lora);
  EXPECT_FALSE(See(Params("base.")).has_lora);
}

TEST(TunixView, RandomGeneratorsAreRecorded) {
  const std::string lines = Params("base.") + "model_params.base.decoder.dropout.rngs.params.count.value = 3\nmodel_params.base.decoder.dropout.rngs.params.key.value\n";
  const View view = See(lines);
  ASSERT_EQ(view.levels.dropped.size(), 2U);
  const Constant& key = view.levels.dropped.at("model_params.base.decoder.dropout.rngs.params.key");
  EXPECT_EQ(key.shape, Shape({2}));
  EXPECT_EQ(key.random_key.GetString("random_key_impl"), "threefry2x32");
  ASSERT_EQ(view.left_out.size(), 1U);
  ExpectTheWayBack(lines, view);
}

TEST(TunixView, GradientsGatheredInTheMidstOfAStepAreTold) {
  const std::string lines = Params("") + Lines({kOptState + "mini_step.value = 2", kOptState + "gradient_step.value = 5", kOptState + "acc_grads." + kKernel + ".value"}) + Adam(kOptState + "inner_opt_state.0.", "");
  EXPECT_THAT(See(lines).notices, ElementsAre(HasSubstr("2 of its micro-steps")));
}

TEST(TunixView, RefusesModelsOfTunixsOwnAndStepsWithoutParameters) {
  EXPECT_THAT(SeeAsMaxText(Step("model_params.layers.0.attn.q_proj.w.value\nmodel_params.embedder.input_embedding.value\n")), IsError(ErrorCode::kUnsupported, HasSubstr("embedder, layers")));
  EXPECT_THAT(SeeAsMaxText(Step(kStep + Adam(kOptState + "0.", ""))), IsError(ErrorCode::kIncomplete, HasSubstr("give the step")));
}

TEST(TunixView, AParameterBesideTheModelIsRefusedByName) {
  const std::string head = "value_head.kernel.value\n";
  const std::string lines = Params("base.") + "model_params." + head + kStep + Adam(kOptState + "0.", "base.");
  EXPECT_THAT(SeeAsMaxText(Step(lines)), IsError(ErrorCode::kUnsupported, HasSubstr("model_params.value_head.kernel")));
  const View random = See(Params("base.") + "model_params.rngs.params.count.value = 3\nmodel_params.rngs.params.key.value\n");
  EXPECT_EQ(random.levels.dropped.size(), 2U) << "random streams stand there too";
}

TEST(TunixView, NoLeafOfTheOptimizerIsPassedOver) {
  const auto refusal = [](const std::string& more) { return See(Params("base.") + kStep + Adam(kOptState + "0.", "base.") + kOptState + more).optimizer_refusal; };
  EXPECT_EQ(refusal("2.count.value = 5\n"), "");
  EXPECT_THAT(refusal("0.mu.value_head.kernel.value\n"), HasSubstr("opt_state.0.mu.value_head.kernel,"));
  EXPECT_THAT(refusal("0.nu.temperature.value = 0.5\n"), HasSubstr("opt_state.0.nu.temperature,"));
}

TEST(TunixView, NoLeafOfMuonsGroupsIsPassedOver) {
  const std::string groups = kOptState + "inner_states.";
  const std::string muon = groups + "muon.inner_state.";
  const std::string lines = Params("base.") + kStep + Lines({muon + "0.count.value = 5", muon + "0.mu.base." + kKernel + ".value", groups + "adam.inner_state.0.count.value = 5",
                                                            groups + "adam.inner_state.0.mu.base." + kTable + ".value", groups + "adam.inner_state.0.nu.base." + kTable + ".value"});
  EXPECT_EQ(See(lines).optimizer_refusal, "");
  for (const std::string& name : {muon + "0.buffer", muon + "1", muon + "0.residual." + kKernel, groups + "adam.trace." + kTable}) {
    EXPECT_THAT(See(lines + name + ".value\n").optimizer_refusal, HasSubstr(name.substr(name.find('.') + 1) + ","));
  }
  const View number = See(lines + muon + "0.beta.value = 0.5\n");
  EXPECT_EQ(number.optimizer_refusal, "");
  EXPECT_TRUE(number.levels.dropped.contains("opt_state.inner_states.muon.inner_state.0.beta"));
  ExpectTheWayBack(lines + muon + "0.beta.value = 0.5\n", number);
}

TEST(TunixView, ExpressionsGoOverTheSource) {
  const std::string lines = Params("base.") + kStep + Adam(kOptState + "0.", "base.");
  const Catalog step = Step(lines);
  const View view = See(lines);
  const std::int32_t seen = view.catalog.Find("params.params." + kKernel);
  ASSERT_GE(seen, 0);
  ASSERT_OK_AND_ASSIGN(const expr::Expr over, view.OverSource(expr::Leaf(seen, DType::kF32, {4, 2})));
  EXPECT_EQ(step.entries[static_cast<std::size_t>(over->leaf)].name, "model_params.base." + kKernel + ".value");
}

}  // namespace
}  // namespace crossdock::dialects::tunix
