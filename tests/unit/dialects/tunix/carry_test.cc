// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/carry.h"

#include "result_matchers.h"
#include "tunix_samples.h"

namespace crossdock::dialects::tunix {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Result<TargetState> Carry(const Catalog& step, const TargetOptions& options = {}, bool no_optim = false) {
  CROSSDOCK_ASSIGN_OR_RETURN(const View view, SeeAsMaxText(step));
  return CarryToMaxText(view, options, no_optim);
}

std::int64_t Number(const TargetState& target, const std::string& name) {
  const Value* row = target.catalog.objects.at("scalars").Find(name);
  return row == nullptr ? -1 : *row->Find("values")->as_sequence()->front().as_int();
}

const std::string kLoop = Params("base.") + kStep + Injected({"learning_rate"}) + Adam(kOptState + "inner_state.1.0.", "base.");

TEST(TunixCarry, GivesTheTreeOfPreTrainingWithTheRecordBesideIt) {
  Catalog step = Step(kLoop);
  step.objects["custom_metadata"] = Json(R"({"global_step": 12})");
  ASSERT_OK_AND_ASSIGN(const TargetState target, Carry(step));
  EXPECT_EQ(PathsOf(target.catalog), PreTraining());
  EXPECT_EQ(target.unit_name, "7");
  EXPECT_EQ(Number(target, "step"), 7);
  EXPECT_EQ(Number(target, "opt_state.0.count"), 5);
  EXPECT_EQ(Number(target, "opt_state.2.count"), 6);
  const Value& metadata = target.catalog.objects.at("custom_metadata");
  EXPECT_EQ(metadata.GetInt("global_step"), 12);
  EXPECT_EQ(metadata.GetBool("scan_layers"), true);
  ASSERT_OK_AND_ASSIGN(const auto levels, LevelsIn(metadata));
  ASSERT_TRUE(levels.has_value());
  EXPECT_EQ(levels->opt_state, (std::vector<std::string>{"inner_state", "1"}));
  for (std::size_t i = 0; i < target.exprs.size(); ++i) {
    const Entry& from = step.entries[static_cast<std::size_t>(target.exprs[i]->leaf)];
    EXPECT_EQ(from.dtype, target.catalog.entries[i].dtype);
    const std::string& name = target.catalog.entries[i].name;
    EXPECT_TRUE(from.name.ends_with(name.substr(name.find("decoder") == std::string::npos ? name.find("token") : name.find("decoder")) + ".value")) << from.name;
  }
}

TEST(TunixCarry, MomentsKeepTheirDType) {
  Catalog step = Step(kLoop);
  for (Entry& entry : step.entries) {
    if (entry.dtype == DType::kF32 && !entry.shape.empty()) entry.dtype = DType::kBF16;
  }
  ASSERT_OK_AND_ASSIGN(const TargetState target, Carry(step));
  for (const Entry& entry : target.catalog.entries) EXPECT_EQ(entry.dtype, DType::kBF16) << entry.name;
}

TEST(TunixCarry, WithoutStateThereIsAPlaceholder) {
  ASSERT_OK_AND_ASSIGN(const TargetState bare, Carry(Step(Params("base."))));
  EXPECT_THAT(PathsOf(bare.catalog), Contains("opt_state Dict"));
  EXPECT_EQ(Number(bare, "step"), 7) << "the directory's";
  ASSERT_OK_AND_ASSIGN(const TargetState left, Carry(Step(kLoop), {}, true));
  EXPECT_EQ(PathsOf(left.catalog), PathsOf(bare.catalog));
}

TEST(TunixCarry, StateThatCannotBeCarriedIsRefusedUnlessItIsLeftBehind) {
  const Catalog step = Step(Params("") + kStep + kOptState + "0.trace." + kKernel + ".value\n");
  EXPECT_THAT(Carry(step), IsError(ErrorCode::kUnsupported, HasSubstr("opt_state.0.trace")));
  EXPECT_THAT(Carry(step, {}, true), IsOk());
}

TEST(TunixCarry, HalfOfAParametersStateIsRefused) {
  for (const std::string& lost : {std::string("mu"), std::string("nu")}) {
    std::string lines = kLoop;
    const std::string line = kOptState + "inner_state.1.0." + lost + ".base." + kTable + ".value\n";
    lines.erase(lines.find(line), line.size());
    EXPECT_THAT(Carry(Step(lines)), IsError(ErrorCode::kIncomplete, HasSubstr(lost == "mu" ? "`adam_nu` only" : "`adam_mu` only")));
    EXPECT_THAT(Carry(Step(lines), {}, true), IsOk());
  }
}

TEST(TunixCarry, WhatStandsInThePlaceOfOurWordsIsNoRecord) {
  for (const char* metadata : {R"({"crossdock": 3})", R"({"crossdock": ["a"]})", R"({"crossdock": null})", R"({"crossdock": {}})"}) {
    Catalog step = Step(kLoop);
    step.objects["custom_metadata"] = Json(metadata);
    ASSERT_OK_AND_ASSIGN(const TargetState target, Carry(step));
    ASSERT_OK_AND_ASSIGN(const auto levels, LevelsIn(target.catalog.objects.at("custom_metadata")));
    EXPECT_TRUE(levels.has_value()) << metadata;
  }
}

TEST(TunixCarry, AnotherIterationSetsTheStepAndTheSchedule) {
  TargetOptions options;
  options.iteration = 100;
  ASSERT_OK_AND_ASSIGN(const TargetState target, Carry(Step(kLoop), options));
  EXPECT_EQ(target.unit_name, "100");
  EXPECT_EQ(Number(target, "step"), 100);
  EXPECT_EQ(Number(target, "opt_state.2.count"), 100);
  EXPECT_EQ(Number(target, "opt_state.0.count"), 5);
}

TEST(TunixCarry, RoutedBiasesAreVariablesAndAdaptersStayAsTheyAre) {
  const std::string bias = "decoder.moe_layers.DeepSeekMoeBlock_0.MoeBlock_0.gate.bias";
  ASSERT_OK_AND_ASSIGN(const TargetState biased, Carry(Step(kLoop + "model_params.base." + bias + ".value\n")));
  EXPECT_THAT(PathsOf(biased.catalog), Contains("nnx_aux.model." + bias));
  EXPECT_THAT(PathsOf(biased.catalog), Contains("params.params." + bias));
  const std::string lora = kKernel + "_lora_a";
  ASSERT_OK_AND_ASSIGN(const TargetState alone, Carry(Step("model_params.base." + lora + ".value\n" + Lines({kOptState + "0.count.value = 2", kOptState + "0.mu.base." + lora + ".value", kOptState + "0.nu.base." + lora + ".value"}))));
  EXPECT_THAT(PathsOf(alone.catalog), Contains("opt_state.[0].mu.params." + lora));
  EXPECT_THAT(alone.notices, Contains(HasSubstr("LoRA")));
}

}  // namespace
}  // namespace crossdock::dialects::tunix
