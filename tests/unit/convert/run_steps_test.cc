// SPDX-License-Identifier: Apache-2.0
#include "convert/run_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunStepsTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text = "{}") {
    ASSERT_THAT(io::MakeDirs(storage_, io::ParentPath(path)), IsOk());
    ASSERT_THAT(io::RemoveFileIfPresent(storage_, path), IsOk());
    ASSERT_THAT(io::WriteSmallFile(storage_, path, text), IsOk());
  }
  void TorchDist(const std::string& step) {
    Put("/run/" + step + "/metadata.json", R"({"sharded_backend": "torch_dist"})");
    Put("/run/" + step + "/.metadata");
  }
  void Track(const std::string& word) { Put("/run/latest_checkpointed_iteration.txt", word); }
  static std::vector<std::int64_t> Numbers(const std::vector<RunStep>& steps) {
    std::vector<std::int64_t> out;
    for (const RunStep& step : steps) out.push_back(step.dir.step);
    return out;
  }
  std::vector<std::int64_t> Announced() {
    const auto steps = AnnouncedSteps(storage_, StepsOfRun(storage_, "/run"));
    return steps ? Numbers(*steps) : std::vector<std::int64_t>{-1};
  }
  io::MemoryStorage storage_;
};

TEST_F(RunStepsTest, TheTrackerAnnouncesWhatIsComplete) {
  for (const char* step : {"iter_0000030", "iter_0000010", "iter_0000020"}) TorchDist(step);
  Put("/run/iter_0000040/__0_0.distcp");
  Put("/run/tensorboard/events");
  const RunSteps run = StepsOfRun(storage_, "/run");
  EXPECT_THAT(Numbers(run.complete), ElementsAre(10, 20, 30));
  ASSERT_EQ(run.unfinished.size(), 1U);
  EXPECT_THAT(run.unfinished[0].path, HasSubstr("iter_0000040"));
  EXPECT_THAT(Announced(), ElementsAre(10, 20, 30));  // metadata.json is written last
  Track("20\n");
  EXPECT_THAT(Announced(), ElementsAre(10, 20));
  Track("40");
  EXPECT_THAT(Announced(), ElementsAre(10, 20, 30));
  Track("3x");
  EXPECT_THAT(AnnouncedSteps(storage_, StepsOfRun(storage_, "/run")), IsError(ErrorCode::kCorrupt, HasSubstr("3x")));
}

TEST_F(RunStepsTest, OfALegacyStepNothingElseTells) {
  Put("/run/iter_0000010/mp_rank_00/model_optim_rng.pt");
  EXPECT_THAT(Announced(), IsEmpty());
  Track("10");
  EXPECT_THAT(Announced(), ElementsAre(10));
}

TEST_F(RunStepsTest, MaxTextKeepsThemBelow) {
  Put("/run/checkpoints/5.orbax-checkpoint-tmp/_CHECKPOINT_METADATA");
  const RunSteps run = StepsOfRun(storage_, "/run");
  EXPECT_EQ(run.place, "/run/checkpoints");
  ASSERT_EQ(run.unfinished.size(), 1U);
  EXPECT_THAT(run.complete, IsEmpty());
}

}  // namespace
}  // namespace crossdock::convert
