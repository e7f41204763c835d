// SPDX-License-Identifier: Apache-2.0
#include "convert/export_job.h"

#include <limits>
#include <stdexcept>

#include "live_run.h"

namespace crossdock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ExportJobTest : public LiveRun {};

TEST_F(ExportJobTest, AFailureOnOneRankIsTheSameOnAllAndTouchesNothing) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ExportOptions options = Options(rank);
    options.dst = dir_ + "/online";
    options.overwrite = true;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    std::vector<LiveBuffer> buffers = ranks_[static_cast<std::size_t>(rank)].buffers;
    ASSERT_THAT(exporter->Save(1, buffers), IsOk());
    const Tree before = rank == 0 ? ReadTree(dir_ + "/online") : Tree();
    std::vector<LiveBuffer> fewer = buffers;
    if (rank == 1) std::erase_if(fewer, [](const LiveBuffer& b) { return b.name.ends_with("linear_qkv.weight"); });
    EXPECT_THAT(exporter->Save(2, fewer), IsError(ErrorCode::kUsage, AllOf(HasSubstr("not those of this rank"), HasSubstr("on rank 1"))));
    std::vector<LiveBuffer> other = buffers;
    if (rank == 0) other[0].shape.push_back(1);
    EXPECT_THAT(exporter->Save(2, other), IsError(ErrorCode::kUsage, AllOf(HasSubstr("of another shape"), HasSubstr("on rank 0"))));
    if (rank == 1) {
      EXPECT_THAT(exporter->Refuse(2, MakeError(ErrorCode::kIo, "the loop raised")), IsError(ErrorCode::kIo, HasSubstr("the loop raised")));
    } else {
      EXPECT_THAT(exporter->Save(2, buffers), IsError(ErrorCode::kIo, AllOf(HasSubstr("the loop raised"), HasSubstr("on rank 1"))));
    }
    ASSERT_THAT(comm->AllGather(""), IsOk());
    // Something that no save may remove lies where rank 0 makes its directory.
    if (rank == 0) {
      EXPECT_EQ(ReadTree(dir_ + "/online"), before);
      fs::create_directories(dir_ + "/home");
      std::ofstream(dir_ + "/home/diary.txt") << "dear diary";
    }
    ASSERT_THAT(comm->AllGather(""), IsOk());
    ExportOptions wrong = options;
    wrong.dst = dir_ + "/home";
    ASSERT_OK_AND_ASSIGN(const auto second, Exporter::Make(wrong, comm));
    EXPECT_THAT(second->Validate(), IsError(ErrorCode::kUsage, HasSubstr("on rank 0")));
    EXPECT_THAT(second->Save(3, buffers), IsError(ErrorCode::kUsage, AllOf(HasSubstr("making the staging directory on rank 0"))));
    EXPECT_THAT(exporter->Save(4, buffers), IsOk());
  });
  for (const auto& entry : fs::directory_iterator(dir_)) EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  EXPECT_EQ(Slurp(dir_ + "/home/diary.txt"), "dear diary");
}

TEST_F(ExportJobTest, RanksThatMeanDifferentThingsAreTold) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    const std::vector<LiveBuffer>& buffers = ranks_[static_cast<std::size_t>(rank)].buffers;
    ExportOptions options = Options(rank);
    if (rank == 1) options.dtype = "fp32";
    ASSERT_OK_AND_ASSIGN(const auto types, Exporter::Make(options, comm));
    EXPECT_THAT(types->Save(1, buffers), IsError(ErrorCode::kUsage, HasSubstr("do not agree on the plan")));
    ASSERT_OK_AND_ASSIGN(const auto steps, Exporter::Make(Options(rank), comm));
    EXPECT_THAT(steps->Save(rank, buffers), IsError(ErrorCode::kUsage, HasSubstr("different targets")));
    ExportOptions twice = Options(rank);
    twice.place = {};
    ASSERT_OK_AND_ASSIGN(const auto places, Exporter::Make(twice, comm));
    EXPECT_THAT(places->Save(1, buffers), IsError(ErrorCode::kUsage, HasSubstr("no rank holds")));
  });
  EXPECT_FALSE(fs::exists(dir_ + "/online"));
}

/// What the run itself wrote is no earlier save, whatever the template makes of a step.
TEST_F(ExportJobTest, NeverReplacesTheRunsOwnCheckpoint) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(1, 1), 1);
  ASSERT_TRUE(fs::exists(tree_ + "/latest_checkpointed_iteration.txt"));
  std::string own;
  for (const auto& entry : fs::directory_iterator(tree_)) {
    if (entry.is_directory()) own = entry.path().string();
  }
  const Tree before = ReadTree(tree_);
  const std::shared_ptr<Comm> solo = MakeSoloComm();
  for (const auto& [dst, overwrite, text] : {std::tuple{tree_, false, "the run's own checkpoints"}, {own, true, "is none"}, {tree_ + "/iter_{step:07d}", false, "the run's own checkpoints"}}) {
    ExportOptions options = Options(0);
    options.dst = dst;
    options.overwrite = overwrite;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, solo));
    EXPECT_THAT(exporter->Validate(), IsError(ErrorCode::kUsage, HasSubstr(text))) << dst;
    EXPECT_THAT(exporter->Save(9, ranks_[0].buffers), IsError(ErrorCode::kUsage, HasSubstr(text))) << dst;
    EXPECT_EQ(ReadTree(tree_), before);
  }
  ExportOptions beside = Options(0);
  beside.dst = tree_ + "/hf_{step}";
  ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(beside, solo));
  EXPECT_THAT(exporter->Validate(), IsOk());
  for (int again = 0; again < 2; ++again) EXPECT_THAT(exporter->Save(9, ranks_[0].buffers), IsOk());
}

/// Nobody waits for a rank that threw, and the next save begins as if nothing had been.
TEST_F(ExportJobTest, AnExceptionIsAnErrorOnAllRanks) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  /// Throws in the place of one call.
  struct Throwing : Comm {
    int rank() const override { return 0; }
    int size() const override { return 1; }
    Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
      if (left-- == 0) throw std::runtime_error("the connection raised");
      return std::vector{bytes};
    }
    int left = -1;
  };
  for (const bool snapshot : {false, true}) {
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      ExportOptions options = Options(rank);
      options.snapshot = snapshot;
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
      const std::vector<LiveBuffer>& buffers = ranks_[static_cast<std::size_t>(rank)].buffers;
      const auto save = [&](const Hooks& hooks) -> Status {
        CROSSDOCK_ASSIGN_OR_RETURN(const auto job, exporter->Save(1, buffers, hooks));
        CROSSDOCK_RETURN_IF_ERROR(job->Wait(60));
        return OkStatus();
      };
      for (const std::string phase : {"making the staging directory", "writing metadata"}) {
        Hooks hooks;
        hooks.on_progress = [&phase](const ProgressEvent& event) {
          if (event.phase == phase) throw std::runtime_error("the hook raised");
        };
        EXPECT_THAT(save(hooks), IsError(ErrorCode::kIo, AllOf(HasSubstr("the hook raised"), HasSubstr("on rank 0")))) << phase;
        ASSERT_THAT(comm->AllGather(""), IsOk());
      }
      EXPECT_FALSE(fs::exists(dir_ + "/online/step_001"));
      ASSERT_THAT(comm->AllGather(""), IsOk());
      EXPECT_THAT(save({}), IsOk());
    });
    for (const auto& entry : fs::directory_iterator(dir_ + "/online")) EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
    fs::remove_all(dir_ + "/online");
  }
  StartRun(Layout(1, 1), 1);
  for (const bool snapshot : {false, true}) {
    const auto comm = std::make_shared<Throwing>();
    ExportOptions options = Options(0);
    options.snapshot = snapshot;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    ASSERT_THAT(exporter->Validate(), IsOk());
    comm->left = 3;  // the third one after "beginning": "measuring"
    const auto saved = exporter->Save(1, ranks_[0].buffers);
    const Status status = !saved ? Status(saved.error()) : (*saved)->Wait(60) ? OkStatus() : Status((*saved)->Wait(60).error());
    EXPECT_THAT(status, IsError(ErrorCode::kIo, HasSubstr("the connection raised")));
    EXPECT_TRUE(fs::is_empty(dir_ + "/online")) << "the staging directory is gone";
    ASSERT_OK_AND_ASSIGN(const auto job, exporter->Save(1, ranks_[0].buffers));
    EXPECT_THAT(job->Wait(std::numeric_limits<double>::infinity()), IsOk());
    EXPECT_THAT(job->Wait(std::nan("")), IsError(ErrorCode::kUsage, HasSubstr("NaN")));
    fs::remove_all(dir_ + "/online");
  }
}

/// One type stands in the file, so all that hold a tensor must have it in that.
TEST_F(ExportJobTest, ReplicasOfDifferentTypesAreToldAndForgotten) {
  WriteReference(kDense, "F32", false);
  StartRun(Layout(1, 1), 2);
  const std::vector<RunningRank> wide = ranks_;
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(1, 1), 2);
  Offline(Options(0));
  for (const bool snapshot : {true, false}) {
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      const auto self = static_cast<std::size_t>(rank);
      ExportOptions options = Options(rank);
      options.snapshot = snapshot;
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
      for (const int odd : {0, 1}) {
        const std::vector<LiveBuffer>& buffers = rank == odd ? wide[self].buffers : ranks_[self].buffers;
        EXPECT_THAT(exporter->Save(1, buffers), IsError(ErrorCode::kUsage, AllOf(HasSubstr("ranks 0 and 1"), HasSubstr("different types"), HasSubstr("weight"))));
      }
      std::vector<LiveBuffer> narrow = ranks_[self].buffers;
      narrow[0].dtype = "F8_E4M3";
      narrow[0].bytes /= 2;
      EXPECT_THAT(exporter->Save(1, narrow), IsError(ErrorCode::kUsage, HasSubstr("unknown type")));
      ASSERT_THAT(exporter->Save(1, ranks_[self].buffers), IsOk());
      ASSERT_THAT(exporter->Flush(60), IsOk());
    });
    ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
    fs::remove_all(dir_ + "/online");
  }
}

/// A call that fails on one rank alone, in whichever step: the ranks find each other again, with the types that they have.
TEST_F(ExportJobTest, RanksComeTogetherAgainAfterAnAnswerWasLost) {
  WriteReference(kDense, "F32", false);
  StartRun(Layout(1, 1), 2);
  /// Everybody else has the answer.
  struct Losing : Comm {
    Losing(std::shared_ptr<Comm> living, int call) : inner(std::move(living)), left(call) {}
    int rank() const override { return inner->rank(); }
    int size() const override { return inner->size(); }
    Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
      auto all = inner->AllGather(bytes);
      if (left-- == 0) return MakeError(ErrorCode::kIo, "the answer was lost");
      return all;
    }
    std::shared_ptr<Comm> inner;
    int left;
  };
  const std::vector<RunningRank> wide = ranks_;
  WriteReference(kDense, "BF16", false);  // so that all plan again
  Offline(Options(0));
  for (int call = 0; call < 9; ++call) {
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      const std::shared_ptr<Comm> used = rank == 1 ? std::make_shared<Losing>(comm, call) : comm;
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(rank), used));
      const std::vector<LiveBuffer>& buffers = wide[static_cast<std::size_t>(rank)].buffers;
      if (rank == 1) {
        EXPECT_THAT(exporter->Save(1, buffers), IsError(ErrorCode::kIo, HasSubstr("lost"))) << call;
      }
      EXPECT_THAT(exporter->Save(1, buffers), IsError(ErrorCode::kUsage, HasSubstr("different steps"))) << call;
      EXPECT_THAT(exporter->Save(1, buffers), IsOk()) << call;
    }, 20);
    ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
    fs::remove_all(dir_ + "/online");
  }
}

TEST_F(ExportJobTest, ALostRankEndsTheSaveAndTheNextOneClearsUp) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  /// Dies, as far as the others can tell, when it has seen the staging directory.
  struct Dying : Comm {
    explicit Dying(std::shared_ptr<Comm> living) : inner(std::move(living)) {}
    int rank() const override { return inner->rank(); }
    int size() const override { return inner->size(); }
    Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
      if (left-- > 0) return inner->AllGather(bytes);
      return MakeError(ErrorCode::kCancelled, "dead");
    }
    std::shared_ptr<Comm> inner;
    int left = 6;
  };
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    std::shared_ptr<Comm> used = rank == 1 ? std::make_shared<Dying>(comm) : comm;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(rank), used));
    const auto saved = exporter->Save(1, ranks_[static_cast<std::size_t>(rank)].buffers);
    if (rank == 0) {
      EXPECT_THAT(saved, IsError(ErrorCode::kIo, HasSubstr("ranks 1 did not come")));
      EXPECT_FALSE(fs::exists(dir_ + "/online/step_001"));
    } else {
      EXPECT_THAT(saved, IsError(ErrorCode::kCancelled, HasSubstr("dead")));
    }
  }, 10.0);
  // What a save that was killed leaves is in nobody's way.
  fs::create_directories(dir_ + "/online/.step_001.crossdock-partial");
  std::ofstream(dir_ + "/online/.step_001.crossdock-partial/model.safetensors") << "half";
  Offline(Options(0));
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(rank), comm));
    ASSERT_THAT(exporter->Save(1, ranks_[static_cast<std::size_t>(rank)].buffers), IsOk());
  });
  ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
  EXPECT_FALSE(fs::exists(dir_ + "/online/.step_001.crossdock-partial"));
}

}  // namespace
}  // namespace crossdock
