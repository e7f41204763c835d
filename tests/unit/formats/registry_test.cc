// SPDX-License-Identifier: Apache-2.0
#include "formats/registry.h"

#include <gtest/gtest.h>

#include "formats/safetensors/header.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTorchDist = R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";

class Registry : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& bytes = "x") {
    ASSERT_THAT(io::MakeDirs(storage_, io::ParentPath(path)), IsOk());
    ASSERT_THAT(io::WriteSmallFile(storage_, path, bytes), IsOk());
  }
  void PutStep(const std::string& dir, bool complete = true) {
    Put(dir + "/.metadata");
    Put(dir + "/__0_0.distcp");
    if (complete) Put(dir + "/metadata.json", kTorchDist);
  }
  void PutWeights(const std::string& path, const std::string& tensor, const safetensors::Metadata& metadata) {
    Put(path, safetensors::PrintHeader(std::vector<safetensors::HeaderTensor>{{tensor, DType::kU8, {0}, {0, 0}}}, metadata));
  }
  Result<Found> Look(const std::string& path, std::optional<std::int64_t> step = std::nullopt, std::optional<Kind> from = std::nullopt) {
    return Recognise(storage_, path, step ? std::optional<StepChoice>({*step, false}) : std::nullopt, from);
  }
  Result<Found> LookForRelease(const std::string& path) { return Recognise(storage_, path, StepChoice{0, true}, std::nullopt); }
  io::MemoryStorage storage_;
};

TEST_F(Registry, FindsTheReleaseByItsWord) {
  PutStep("/run/iter_0000005");
  EXPECT_THAT(LookForRelease("/run"), IsError(ErrorCode::kIncomplete, HasSubstr("the run has no `release`, in `/run`; found `iter_0000005`")));
  PutStep("/run/release");
  Put("/run/latest_checkpointed_iteration.txt", "5");
  ASSERT_OK_AND_ASSIGN(const Found found, LookForRelease("/run"));
  EXPECT_EQ(found.path, "/run/release");
  EXPECT_TRUE(found.release);
  EXPECT_THAT(LookForRelease("/run/release"), IsOk());
  EXPECT_THAT(LookForRelease("/run/iter_0000005"),
              IsError(ErrorCode::kUsage, HasSubstr("expected `release`, found step 5")));
  EXPECT_THAT(Look("/run/release", 0), IsError(ErrorCode::kUsage, HasSubstr("expected step 0, found `release`")));
}

TEST_F(Registry, NamesGoBothWays) {
  for (const Kind kind : {Kind::kHf, Kind::kFullState, Kind::kMegatron, Kind::kMegatronLegacy, Kind::kMegatronZarr, Kind::kDcp,
                          Kind::kMaxText, Kind::kTunix}) {
    EXPECT_EQ(KindFromName(KindName(kind)), kind);
  }
  EXPECT_EQ(KindFromName("orbax"), std::nullopt);
}

TEST_F(Registry, TellsFullStateFromHuggingFace) {
  PutWeights("/hf/model.safetensors", "a", {{"format", "pt"}});
  PutWeights("/fs/model.safetensors", "param/a", {});
  PutWeights("/ling/x.safetensors", "a", {{"format", "ling3-muon-full-state-v1"}});
  ASSERT_OK_AND_ASSIGN(const Found hf, Look("/hf/"));
  EXPECT_EQ(hf.kind, Kind::kHf);
  ASSERT_OK_AND_ASSIGN(const Found full_state, Look("/fs"));
  EXPECT_EQ(full_state.kind, Kind::kFullState);
  ASSERT_OK_AND_ASSIGN(const Found file, Look("/fs/model.safetensors"));
  EXPECT_EQ(file.kind, Kind::kFullState);
  ASSERT_OK_AND_ASSIGN(const Found ling, Look("/ling"));
  EXPECT_EQ(ling.kind, Kind::kFullState);
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(storage_, full_state));
  EXPECT_EQ(reader->catalog().entries.size(), 1U);
}

TEST_F(Registry, FollowsTheTracker) {  // user case B108
  PutStep("/run/iter_0000010");
  PutStep("/run/iter_0000020", false);
  Put("/run/latest_checkpointed_iteration.txt", "10\n");
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run"));
  EXPECT_EQ(found.path, "/run/iter_0000010");
  EXPECT_EQ(found.step, 10);
  EXPECT_EQ(found.run_root, "/run");
  EXPECT_FALSE(found.release);
  EXPECT_THAT(Look("/run", 20), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("iter_0000020"), HasSubstr("metadata.json"))));
  EXPECT_THAT(Look("/run/iter_0000020"), IsError(ErrorCode::kIncomplete, HasSubstr("incomplete")));
  EXPECT_THAT(Look("/run", 30), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("no step 30"), HasSubstr("iter_0000010"))));
}

TEST_F(Registry, SaysHowReleaseIsChosen) {
  PutStep("/run/release");
  EXPECT_THAT(Look("/run", 9), IsError(ErrorCode::kIncomplete, HasSubstr("the run has no step 9, in `/run`; found `release`\nhint: choose one of these with --step; `release` has no number: `--step release`")));
  PutStep("/run/iter_0000005");
  EXPECT_THAT(Look("/run", 9), IsError(ErrorCode::kIncomplete, HasSubstr("choose one of these with --step; `release` has no number")));
}

TEST_F(Registry, TellsOfAnInterruptedRun) {
  Put("/run/.release.crossdock-partial/.crossdock-journal", "x");
  EXPECT_THAT(Look("/run"), IsError(ErrorCode::kIncomplete, HasSubstr("an interrupted run lies in `/run/.release.crossdock-partial`")));
  Put("/w/.out.crossdock-partial/.crossdock-journal", "x");
  EXPECT_THAT(Look("/w/out"), IsError(ErrorCode::kIncomplete, HasSubstr("`/w/.out.crossdock-partial`")));
}

TEST_F(Registry, TakesOneWordFromTheTracker) {
  PutStep("/run/iter_0000010");
  Put("/run/latest_checkpointed_iteration.txt", " \r\n10 \t\n");
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run"));
  EXPECT_EQ(found.step, 10);
  for (const char* text : {"1 0", "1\n0\n", " ", "", "10\n20"}) {
    ASSERT_THAT(storage_.RemoveFile("/run/latest_checkpointed_iteration.txt"), IsOk());
    Put("/run/latest_checkpointed_iteration.txt", text);
    EXPECT_THAT(Look("/run"), IsError(ErrorCode::kCorrupt, HasSubstr("names no iteration"))) << text;
  }
}

TEST_F(Registry, WithoutTrackerTakesTheHighestCompleteStepByNumber) {  // B108, B109
  PutStep("/run/iter_0000500");
  PutStep("/run/iter_10000000");
  PutStep("/run/iter_20000000", false);
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run"));
  EXPECT_EQ(found.step, 10000000);
  EXPECT_THAT(found.notices, Contains(HasSubstr("`iter_20000000` is incomplete")));
  EXPECT_THAT(found.notices, Contains(HasSubstr("no tracker file")));
  ASSERT_OK_AND_ASSIGN(const Found asked, Look("/run", 500));
  EXPECT_EQ(asked.path, "/run/iter_0000500");
}

TEST_F(Registry, ReadsRelease) {
  PutStep("/run/release");
  Put("/run/latest_checkpointed_iteration.txt", "release");
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run"));
  EXPECT_TRUE(found.release);
  EXPECT_EQ(found.step, 0);
  ASSERT_OK_AND_ASSIGN(const Found direct, Look("/run/release"));
  EXPECT_TRUE(direct.release);
  EXPECT_EQ(direct.run_root, "/run");
}

TEST_F(Registry, TrackerMayBeWrong) {
  PutStep("/run/iter_0000010");
  Put("/run/latest_checkpointed_iteration.txt", "20");
  EXPECT_THAT(Look("/run"), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("iter_0000020"), HasSubstr("`iter_0000010`"))));
  Put("/other/latest_checkpointed_iteration.txt", "soon");
  EXPECT_THAT(Look("/other"), IsError(ErrorCode::kCorrupt, HasSubstr("soon")));
}

TEST_F(Registry, OneStepTakesNoOtherStep) {  // B132
  PutStep("/run/iter_0000010");
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run/iter_0000010", 10));
  EXPECT_EQ(found.step, 10);
  EXPECT_THAT(found.notices, IsEmpty());
  EXPECT_THAT(Look("/run/iter_0000010", 20), IsError(ErrorCode::kUsage, HasSubstr("step 10")));
}

TEST_F(Registry, WrongLevelListsWhatLiesBelow) {  // B132
  PutStep("/top/exp1/iter_0000010");
  Put("/top/exp1/latest_checkpointed_iteration.txt", "10");
  PutWeights("/top/models/tiny/model.safetensors", "a", {});
  EXPECT_THAT(Look("/top"), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("`exp1`"), HasSubstr("`models/tiny`"))));
  EXPECT_THAT(Look("/nowhere"), IsError(ErrorCode::kIncomplete, HasSubstr("/nowhere")));
  EXPECT_THAT(Look("/run/iter_0000010/.metadata").has_value(), false);
}

TEST_F(Registry, WrongFromIsToldAndRefused) {  // B134
  PutStep("/run/iter_0000010");
  EXPECT_THAT(Look("/run", std::nullopt, Kind::kHf), IsError(ErrorCode::kUsage, AllOf(HasSubstr("`hf`"), HasSubstr("`megatron`"))));
  EXPECT_THAT(Look("/run", std::nullopt, Kind::kMegatron), IsOk());
}

TEST(Recognise, TellsZarrFromTorchDistByMetadataJson) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/c/iter_0000001"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, "/c/iter_0000001/metadata.json", R"({"sharded_backend": "zarr"})"), IsOk());
  ASSERT_OK_AND_ASSIGN(const Found found, Recognise(storage, "/c/iter_0000001", std::nullopt, std::nullopt));
  EXPECT_EQ(found.kind, Kind::kMegatronZarr);
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(storage, found));
  EXPECT_EQ(reader->catalog().format, "zarr");
}

TEST_F(Registry, TellsPlainDcpInBothForms) {
  Put("/dcp/.metadata", "x");
  Put("/dcp/__0_0.distcp", "x");
  ASSERT_OK_AND_ASSIGN(const Found plain, Look("/dcp"));
  EXPECT_EQ(plain.kind, Kind::kDcp);
  Put("/shards/shard-00001-model-00001-of-00001.safetensors", "x");
  ASSERT_OK_AND_ASSIGN(const Found shards, Look("/shards", std::nullopt, Kind::kDcp));
  EXPECT_EQ(shards.kind, Kind::kDcp);
  Put("/shards/model.safetensors", "x");
  ASSERT_OK_AND_ASSIGN(const Found whole, Look("/shards"));
  EXPECT_EQ(whole.kind, Kind::kHf);
  Put("/cut/__0_0.distcp", "x");
  EXPECT_THAT(Look("/cut"), IsError(ErrorCode::kIncomplete, HasSubstr("`.metadata` is missing")));
}

TEST_F(Registry, TakesTheNewestFinishedOrbaxStep) {
  for (const char* step : {"/run/7", "/run/12", "/run/20.orbax-checkpoint-tmp", "/run/21.orbax-checkpoint-tmp-1700000000"}) {
    Put(std::string(step) + "/_CHECKPOINT_METADATA", "{}");
    Put(std::string(step) + "/items/_METADATA", "{}");
  }
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run"));
  EXPECT_EQ(found.kind, Kind::kMaxText);
  EXPECT_EQ(found.path, "/run/12");
  EXPECT_EQ(found.step, 12);
  EXPECT_THAT(found.notices, Contains(HasSubstr("`20.orbax-checkpoint-tmp` was not saved to its end")));
  EXPECT_THAT(found.notices, Contains(HasSubstr("the newest complete step, `12`, is used")));
  ASSERT_OK_AND_ASSIGN(const Found seven, Look("/run", 7));
  EXPECT_EQ(seven.path, "/run/7");
  ASSERT_OK_AND_ASSIGN(const Found direct, Look("/run/7"));
  EXPECT_EQ(direct.step, 7);
  EXPECT_THAT(Look("/run/20.orbax-checkpoint-tmp"), IsError(ErrorCode::kIncomplete, HasSubstr("being written")));
}

TEST_F(Registry, KnowsAnOrbaxStepByItsItemsAlone) {
  Put("/run/000012/items/_METADATA", "{}");
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run/000012"));
  EXPECT_EQ(found.kind, Kind::kMaxText);
  ASSERT_OK_AND_ASSIGN(const Found item, Look("/run/000012/items"));
  EXPECT_EQ(item.kind, Kind::kMaxText);
}

TEST_F(Registry, TakesTunixsNewestFinishedStep) {
  for (const char* step : {"/run/2", "/run/10"}) {
    Put(std::string(step) + "/model_params/_METADATA", "{}");
    Put(std::string(step) + "/optimizer_state/_METADATA", "{}");
  }
  Put("/run/20/model_params/_METADATA", "{}");
  Put("/run/20/optimizer_state.orbax-checkpoint-tmp/d/x");
  Put("/run/30.orbax-checkpoint-tmp/model_params/_METADATA", "{}");
  ASSERT_OK_AND_ASSIGN(const Found found, Look("/run"));
  EXPECT_EQ(found.kind, Kind::kTunix);
  EXPECT_EQ(found.path, "/run/10");
  EXPECT_EQ(found.step, 10);
  ASSERT_OK_AND_ASSIGN(const Found asked, Look("/run", 2, Kind::kTunix));
  EXPECT_EQ(asked.path, "/run/2");
  ASSERT_OK_AND_ASSIGN(const Found item, Look("/run/10/model_params"));
  EXPECT_EQ(item.kind, Kind::kTunix);
  EXPECT_EQ(item.step, 10);
}

TEST_F(Registry, ARootOfReinforcementLearningHoldsARunForEachModel) {
  Put("/rl/actor/1/model_params/_METADATA", "{}");
  Put("/rl/actor/2/model_params/_METADATA", "{}");
  ASSERT_OK_AND_ASSIGN(const Found lone, Look("/rl"));
  EXPECT_EQ(lone.path, "/rl/actor/2");
  EXPECT_THAT(lone.notices, Contains(HasSubstr("`actor`")));
  ASSERT_OK_AND_ASSIGN(const Found first, Look("/rl", 1));
  EXPECT_EQ(first.path, "/rl/actor/1");
  Put("/rl/critic/2/model_params/_METADATA", "{}");
  EXPECT_THAT(Look("/rl"), IsError(ErrorCode::kUsage, AllOf(HasSubstr("`actor`, `critic`"), HasSubstr("/rl/actor"))));
  ASSERT_OK_AND_ASSIGN(const Found critic, Look("/rl/critic"));
  EXPECT_EQ(critic.path, "/rl/critic/2");
}

}  // namespace
}  // namespace crossdock::formats
