// SPDX-License-Identifier: Apache-2.0
/// Every branch of the decision, on checkpoints of the demo model that are copied into runs and damaged there.
#include "convert/resume_decision.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "result_matchers.h"

namespace crossdock::convert {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ResumeDecisionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    samples_ = new fs::path(fs::path(testing::TempDir()) / ("resume_samples-" + std::to_string(getpid())));
    fs::remove_all(*samples_);
    ASSERT_THAT(Demo(samples_->string(), {}), IsOk());
    Make("maxtext", "");
    Make("megatron", "");
    Make("megatron", "release");
  }
  static void TearDownTestSuite() {
    fs::remove_all(*samples_);
    delete samples_;
    samples_ = nullptr;
  }
  static void Make(const char* to, const std::string& name) {
    ConvertOptions options;
    options.source = (*samples_ / (name.empty() ? "full-state" : "hf")).string();
    options.target = (*samples_ / (name.empty() ? to : name)).string();
    options.to = to;
    options.iteration = name.empty() ? std::optional<std::int64_t>(20) : std::nullopt;
    options.release = !name.empty();
    ASSERT_THAT(Convert(options, {}), IsOk());
  }

  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("resume_run-" + std::to_string(getpid()));
    fs::remove_all(root_);
    run_ = root_ / "run";
    options_.run_dir = run_.string();
  }
  void TearDown() override { fs::remove_all(root_); }

  static fs::path Sample(const std::string& name) { return *samples_ / name; }
  /// A copy of a sample's step as `to`.
  static void Put(const fs::path& from, const fs::path& to) {
    fs::create_directories(to.parent_path());
    fs::copy(from, to, fs::copy_options::recursive);
  }
  void MaxTextStep(const std::string& name) { Put(Sample("maxtext") / "20", run_ / "checkpoints" / name); }
  void MegatronStep(const std::string& name) { Put(Sample("megatron") / "iter_0000020", run_ / name); }
  void Track(const std::string& word) {
    fs::create_directories(run_);
    std::ofstream(run_ / "latest_checkpointed_iteration.txt") << word;
  }
  Result<ResumeDecision> Decide() {
    const auto storage = io::MakeLocalStorage();
    return DecideResume(*storage, options_);
  }

  static fs::path* samples_;
  fs::path root_, run_;
  ResumeOptions options_;
};
fs::path* ResumeDecisionTest::samples_ = nullptr;

TEST_F(ResumeDecisionTest, WithNothingAtAllTheRunStarts) {
  ASSERT_OK_AND_ASSIGN(const ResumeDecision absent, Decide());
  EXPECT_EQ(absent.action, ResumeAction::kStart);
  EXPECT_THAT(absent.notices, ElementsAre("the run's directory does not exist yet"));
  EXPECT_FALSE(absent.load_optim);
  fs::create_directories(run_ / "tensorboard");
  ASSERT_OK_AND_ASSIGN(const ResumeDecision empty, Decide());
  EXPECT_EQ(empty.action, ResumeAction::kStart);
  EXPECT_THAT(empty.arguments, IsEmpty());
}

TEST_F(ResumeDecisionTest, TheFirstTimeTheFullStateIsLoadedAndTheOverrideCounts) {
  options_.full_state_path = Sample("maxtext").string();
  options_.consumed_train_samples_override = 4096;
  options_.hf_path = Sample("hf").string();
  ASSERT_OK_AND_ASSIGN(const ResumeDecision first, Decide());
  EXPECT_EQ(first.action, ResumeAction::kLoadFullState);
  EXPECT_EQ(first.consumed_train_samples, 4096);
  EXPECT_EQ(first.step, 20);
  EXPECT_TRUE(first.load_optim);
  EXPECT_THAT(first.arguments, ElementsAre("load_full_state_path=" + (Sample("maxtext") / "20" / "items").string()));
  EXPECT_THAT(first.notices, Contains(HasSubstr("the Hugging Face weights are not loaded")));

  MaxTextStep("25");  // what the run saved since
  options_.full_state_path = (root_ / "long gone").string();
  ASSERT_OK_AND_ASSIGN(const ResumeDecision second, Decide());
  EXPECT_EQ(second.action, ResumeAction::kResume);
  EXPECT_EQ(second.step, 25);
  EXPECT_EQ(second.consumed_train_samples, std::nullopt);
  EXPECT_THAT(second.notices, AllOf(Contains(HasSubstr("the override counted the first time only")), Contains(HasSubstr("long gone` is not looked at"))));
}

TEST_F(ResumeDecisionTest, MaxTextGoesOnFromItsNewestCompleteStep) {
  MaxTextStep("20");
  MaxTextStep("30");
  MaxTextStep("40.orbax-checkpoint-tmp");
  MaxTextStep("50");
  fs::rename(run_ / "checkpoints/50/items", run_ / "checkpoints/50/items.orbax-checkpoint-tmp");
  MaxTextStep("60");
  fs::remove(run_ / "checkpoints/60/items/manifest.ocdbt");
  for (const fs::path& dir : {run_, run_ / "checkpoints"}) {
    options_.run_dir = dir.string();
    ASSERT_OK_AND_ASSIGN(const ResumeDecision plan, Decide());
    EXPECT_EQ(plan.action, ResumeAction::kResume);
    EXPECT_EQ(plan.path, (run_ / "checkpoints/30").string());
    EXPECT_EQ(plan.step, 30);
    EXPECT_THAT(plan.unfinished, ElementsAre(HasSubstr("/50"), HasSubstr("/60"), HasSubstr("/40.orbax-checkpoint-tmp")));
    EXPECT_THAT(plan.arguments, IsEmpty());  // MaxText finds it itself
    EXPECT_THAT(plan.notices, Contains(HasSubstr("move them away first")));
  }
}

TEST_F(ResumeDecisionTest, UnfinishedStepsAloneAreNone) {
  MaxTextStep("7.orbax-checkpoint-tmp");
  options_.full_state_path = Sample("full-state").string();
  ASSERT_OK_AND_ASSIGN(const ResumeDecision plan, Decide());
  EXPECT_EQ(plan.action, ResumeAction::kLoadFullState);
  EXPECT_EQ(plan.format, "full-state");
  EXPECT_THAT(plan.arguments, IsEmpty());
  EXPECT_THAT(plan.unfinished, ElementsAre(HasSubstr("7.orbax-checkpoint-tmp")));
  EXPECT_THAT(plan.notices, Contains(HasSubstr("crossdock convert " + Sample("full-state").string() + " " + run_.string() + " --to maxtext")));
}

TEST_F(ResumeDecisionTest, MaxTextHasNoSwitchesForItsOwnSteps) {
  MaxTextStep("20");
  MaxTextStep("30");
  options_.step = StepChoice{20, false};
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("goes on from the newest step"), HasSubstr("expected step 30, found --step 20"))));
  options_.step = StepChoice{30, false};
  EXPECT_THAT(Decide(), IsOk());
  options_.no_optim = true;
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUnsupported, HasSubstr("without a part of its state; found --no-optim")));
  options_.no_optim = false;
  options_.no_rng = true;
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUnsupported, HasSubstr("found --no-rng")));
}

TEST_F(ResumeDecisionTest, WithoutOptimizerMaxTextLoadsParameters) {
  options_.full_state_path = (Sample("maxtext") / "20").string();
  options_.no_optim = true;
  ASSERT_OK_AND_ASSIGN(const ResumeDecision plan, Decide());
  EXPECT_FALSE(plan.load_optim);
  EXPECT_THAT(plan.arguments, ElementsAre("load_parameters_path=" + (Sample("maxtext") / "20" / "items").string()));
}

TEST_F(ResumeDecisionTest, MegatronsTrackerWinsOverWeights) {
  MegatronStep("iter_0000020");
  MegatronStep("iter_0000030");  // saved, but the tracker was not moved
  Track("20");
  Put(Sample("hf") / "config.json", run_ / "config.json");  // weights in the same directory
  Put(Sample("hf") / "model.safetensors", run_ / "model.safetensors");
  options_.hf_path = run_.string();
  options_.no_optim = options_.no_rng = true;
  ASSERT_OK_AND_ASSIGN(const ResumeDecision plan, Decide());
  EXPECT_EQ(plan.action, ResumeAction::kResume);
  EXPECT_EQ(plan.step, 20);
  EXPECT_THAT(plan.arguments, ElementsAre("--load", run_.string(), "--no-load-optim", "--no-load-rng"));
  EXPECT_THAT(plan.notices, Contains(HasSubstr("the newer `iter_0000030` is not used")));
  options_.step = StepChoice{30, false};
  ASSERT_OK_AND_ASSIGN(const ResumeDecision chosen, Decide());
  EXPECT_THAT(chosen.arguments, ElementsAre("--load", run_.string(), "--ckpt-step", "30", "--no-load-optim", "--no-load-rng"));
  options_.step = StepChoice{40, false};
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("the run has no step 40")));
}

TEST_F(ResumeDecisionTest, ATrackerThatLeadsNowhereIsRefusedWithTheChoice) {
  MegatronStep("iter_0000020");
  Track("30");
  options_.hf_path = Sample("hf").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("the step that the tracker names is missing"),
                                                              HasSubstr("the newest complete step is 20: go on from it with --step 20"))));
  MegatronStep("iter_0000030");
  fs::remove(run_ / "iter_0000030/metadata.json");
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("`metadata.json` is missing"), HasSubstr("--step 20"))));
  Track("thirty");
  EXPECT_THAT(Decide(), IsError(ErrorCode::kCorrupt, HasSubstr("the tracker names no iteration")));
  fs::remove_all(run_ / "iter_0000020");
  Track("30");
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("the run has no complete step")));
}

TEST_F(ResumeDecisionTest, AStepWithoutItsDataIsFoundNow) {
  MegatronStep("iter_0000020");
  Track("20");
  fs::remove(run_ / "iter_0000020/__0_0.distcp");
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("__0_0.distcp")));
}

TEST_F(ResumeDecisionTest, AMegatronRunWithoutTrackerIsToldItsStep) {
  MegatronStep("iter_0000020");
  MegatronStep("iter_0000030");
  fs::remove(run_ / "iter_0000030/metadata.json");
  ASSERT_OK_AND_ASSIGN(const ResumeDecision plan, Decide());
  EXPECT_EQ(plan.action, ResumeAction::kResume);
  EXPECT_THAT(plan.arguments, ElementsAre("--load", run_.string(), "--ckpt-step", "20"));
  EXPECT_THAT(plan.unfinished, ElementsAre(HasSubstr("iter_0000030")));
}

TEST_F(ResumeDecisionTest, ReleaseIsLoadedByTheTrackerAlone) {
  Put(Sample("release") / "release", run_ / "release");
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUnsupported, HasSubstr("only where the tracker names it")));
  Track("release");
  ASSERT_OK_AND_ASSIGN(const ResumeDecision plan, Decide());
  EXPECT_TRUE(plan.release);
  EXPECT_EQ(plan.step, 0);
  EXPECT_THAT(plan.arguments, ElementsAre("--load", run_.string()));
}

TEST_F(ResumeDecisionTest, AnotherMegatronRunIsAFullState) {
  options_.full_state_path = Sample("megatron").string();
  ASSERT_OK_AND_ASSIGN(const ResumeDecision plan, Decide());
  EXPECT_EQ(plan.action, ResumeAction::kLoadFullState);
  EXPECT_THAT(plan.arguments, ElementsAre("--load", Sample("megatron").string()));
  options_.full_state_path = (Sample("megatron") / "iter_0000020").string();
  ASSERT_OK_AND_ASSIGN(const ResumeDecision step, Decide());
  EXPECT_THAT(step.arguments, ElementsAre("--load", Sample("megatron").string(), "--ckpt-step", "20"));
}

TEST_F(ResumeDecisionTest, WeightsAreLoadedAtStepZero) {
  options_.hf_path = Sample("hf").string();
  ASSERT_OK_AND_ASSIGN(const ResumeDecision named, Decide());
  EXPECT_EQ(named.action, ResumeAction::kLoadWeights);
  EXPECT_EQ(named.step, 0);
  EXPECT_FALSE(named.load_optim);
  options_.hf_path.reset();
  Put(Sample("hf"), run_);
  ASSERT_OK_AND_ASSIGN(const ResumeDecision inside, Decide());
  EXPECT_EQ(inside.action, ResumeAction::kLoadWeights);
  EXPECT_EQ(inside.path, run_.string());
}

TEST_F(ResumeDecisionTest, NothingWhereAPathWasGivenIsAnError) {
  options_.full_state_path = (root_ / "nowhere").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("nowhere")));
  fs::create_directories(root_ / "empty");
  options_.full_state_path = (root_ / "empty").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("no checkpoint of a known format here")));
  options_.full_state_path = Sample("hf").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUsage, HasSubstr("weights alone, not a full state")));
  options_.full_state_path = Sample("release").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("the full state holds no optimizer state")));
  options_.full_state_path.reset();
  options_.hf_path = (root_ / "nowhere").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("nowhere")));
  options_.hf_path = Sample("full-state").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUsage, HasSubstr("this is a `full-state` checkpoint, not Hugging Face weights")));
}

TEST_F(ResumeDecisionTest, WhatNothingWouldUseIsRefused) {
  options_.consumed_train_samples_override = 5;
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUsage, HasSubstr("counts where a full state is loaded")));
  options_.consumed_train_samples_override.reset();
  options_.step = StepChoice{5, false};
  EXPECT_THAT(Decide(), IsError(ErrorCode::kIncomplete, HasSubstr("step 5 was asked for, and the run has no complete checkpoint")));
  options_.step.reset();
  options_.run_dir = (Sample("maxtext") / "20").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUsage, AllOf(HasSubstr("one `maxtext` checkpoint, not a run"), HasSubstr("give the directory above"))));
  options_.run_dir = (Sample("hf") / "config.json").string();
  EXPECT_THAT(Decide(), IsError(ErrorCode::kUsage, HasSubstr("the run's directory is a file")));
}

TEST_F(ResumeDecisionTest, DetectingTakesTrackerThenWeightsThenThePretrained) {
  const auto storage = io::MakeLocalStorage();
  DetectOptions detect;
  const auto decide = [&] { return DetectResumeIn(*storage, detect); };
  ASSERT_OK_AND_ASSIGN(const ResumeDecision none, decide());
  EXPECT_EQ(none.action, ResumeAction::kStart);
  detect.load = run_.string();
  EXPECT_THAT(decide(), IsError(ErrorCode::kIncomplete, HasSubstr("nothing was found to begin with")));
  fs::create_directories(run_);
  EXPECT_THAT(decide(), IsError(ErrorCode::kIncomplete, HasSubstr("nothing was found to begin with")));
  detect.pretrained = Sample("megatron").string();
  ASSERT_OK_AND_ASSIGN(const ResumeDecision pretrained, decide());
  EXPECT_EQ(pretrained.action, ResumeAction::kLoadWeights);
  EXPECT_EQ(pretrained.path, (Sample("megatron") / "iter_0000020").string());
  EXPECT_FALSE(pretrained.load_optim || pretrained.load_rng);
  EXPECT_TRUE(pretrained.finetune);
  // Weights in the run itself come before the pretrained ones.
  Put(Sample("hf"), run_);
  ASSERT_OK_AND_ASSIGN(const ResumeDecision weights, decide());
  EXPECT_EQ(weights.action, ResumeAction::kLoadWeights);
  EXPECT_EQ(weights.format, "hf");
  EXPECT_EQ(weights.path, run_.string());
  EXPECT_EQ(weights.step, 0);
  EXPECT_FALSE(weights.finetune);
  EXPECT_THAT(weights.notices, Contains(HasSubstr("is not looked at")));
  // And a checkpoint of the run before both.
  MegatronStep("iter_0000020");
  Track("20");
  detect.no_rng = true;
  ASSERT_OK_AND_ASSIGN(const ResumeDecision own, decide());
  EXPECT_EQ(own.action, ResumeAction::kResume);
  EXPECT_EQ(own.step, 20);
  EXPECT_TRUE(own.load_optim);
  EXPECT_FALSE(own.load_rng);
  detect.step = StepChoice{30, false};
  EXPECT_THAT(decide(), IsError(ErrorCode::kIncomplete, HasSubstr("30")));
  detect.load.clear();
  EXPECT_THAT(decide(), IsError(ErrorCode::kUsage, HasSubstr("no run is given")));
}

TEST_F(ResumeDecisionTest, DetectingFindsAPretrainedPathThatHoldsNothing) {
  const auto storage = io::MakeLocalStorage();
  EXPECT_THAT(DetectResumeIn(*storage, {run_.string(), (root_ / "other").string(), {}, false, false}),
              IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("other"), HasSubstr("either"))));
}

}  // namespace
}  // namespace crossdock::convert
