// SPDX-License-Identifier: Apache-2.0
/// \file  A whole run (stage, execute, write metadata, commit, marker) over storage that fails or goes down: call N
/// fails for N = 1, 2, ... until none is hit, and every prefix of the recorded operations is a crash. After each the
/// target is absent, old or new, and going on ends at the same bytes.
#include <gtest/gtest.h>

#include "io/faulty_storage.h"
#include "io/memory_storage.h"
#include "io/staging.h"
#include "result_matchers.h"
#include "unit/execute/small_job.h"

namespace crossdock::execute {
namespace {

using Files = std::map<std::string, std::string>;
constexpr const char* kTarget = "/runs/iter_0000020";
constexpr const char* kTracker = "/runs/latest_checkpointed_iteration.txt";

struct RunOptions {
  bool replace = false;
  bool resume = false;
  int threads = 1;
};

/// What convert does, less the planning.
Status RunJob(SmallJob& job, io::Storage& source, io::Storage& target, const RunOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto staging,
                             io::Staging::Begin(target, kTarget, {options.replace, options.resume}));
  if (staging->completed()) return OkStatus();
  if (staging->resuming()) {
    std::vector<std::string> files;
    for (const FileRef& file : job.placement.catalog.files) files.push_back(file.path);
    CROSSDOCK_RETURN_IF_ERROR(staging->KeepOnly(files));
  }
  ExecuteOptions execute;
  execute.threads = options.threads;
  execute.resume = staging->resuming();
  execute.journal_bytes = 150'000;
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const ExecuteReport report,
                             job.Run(source, target, staging->dir(), execute));
  CROSSDOCK_RETURN_IF_ERROR(job.writer.WriteMetadata(job.placement.catalog, target, staging->dir()));
  return staging->Commit({{kTracker, "20"}});
}

class CommitFault : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = SmallJob::Make(source_, {.task_bytes = 256 << 10, .big_bytes = 400'000});
    ASSERT_THAT(made, IsOk());
    job_ = std::move(*made);
    new_ = job_->ExpectedFiles();
    new_["metadata"] = "raw";
  }
  /// A target storage, with an older checkpoint in the way or not.
  static std::unique_ptr<io::MemoryStorage> Target(bool old) {
    auto target = std::make_unique<io::MemoryStorage>();
    EXPECT_THAT(target->MakeDir("/runs"), IsOk());
    if (old) {
      EXPECT_THAT(target->MakeDir(kTarget), IsOk());
      EXPECT_THAT(io::WriteSmallFile(*target, io::JoinPath(kTarget, "metadata"), "old"), IsOk());
      EXPECT_THAT(io::WriteSmallFile(*target, kTracker, "10"), IsOk());
    }
    return target;
  }
  void ExpectOldOrNew(const io::MemoryStorage& target, bool old) {
    const Files found = target.Files(kTarget);
    const Files before = old ? Files{{"metadata", "old"}} : Files{};
    EXPECT_TRUE(found == before || found == new_) << found.size() << " files";
    const Files runs = target.Files("/runs");
    const auto tracker = runs.find("latest_checkpointed_iteration.txt");
    const bool marked = tracker != runs.end() && tracker->second == "20";
    EXPECT_TRUE(!marked || found == new_) << "the marker came too early";
  }
  void ExpectFinished(const io::MemoryStorage& target) {
    EXPECT_TRUE(target.Files(kTarget) == new_);
    EXPECT_EQ(target.Files("/runs").at("latest_checkpointed_iteration.txt"), "20");
    EXPECT_EQ(target.Files("/runs").size(), new_.size() + 1) << "something was left behind";
  }
  io::MemoryStorage source_;
  std::unique_ptr<SmallJob> job_;
  Files new_;
};

struct FaultCase {
  const char* name;
  io::Fault fault;
  bool old;
};
void PrintTo(const FaultCase& c, std::ostream* out) { *out << c.name; }

class StorageFault : public CommitFault, public ::testing::WithParamInterface<FaultCase> {};

TEST_P(StorageFault, LeavesAbsentOldOrNewAndCanBeResumed) {
  const FaultCase& c = GetParam();
  bool hit = true;
  std::int64_t n = 1;
  for (; hit; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    const auto target = Target(c.old);
    io::Fault fault = c.fault;
    fault.at_call = n;
    io::FaultyStorage faulty(*target, fault);
    const auto ran = RunJob(*job_, source_, faulty, {.replace = c.old});
    hit = faulty.hit();
    // A lock file or a parent that cannot be removed is no error: then a fault is hit and the run still succeeds.
    EXPECT_TRUE(ran.has_value() ? true : hit && ran.error().code == fault.code);
    ExpectOldOrNew(*target, c.old);
    ASSERT_THAT(RunJob(*job_, source_, *target, {.replace = true, .resume = true}), IsOk());
    ExpectFinished(*target);
    if (HasFailure()) return;
  }
  EXPECT_GT(n, 30) << "the fault reached hardly anything";
}

INSTANTIATE_TEST_SUITE_P(
    All, StorageFault,
    ::testing::Values(
        FaultCase{"io_error", {.code = ErrorCode::kIo}, false},
        FaultCase{"io_error_replacing", {.code = ErrorCode::kIo}, true},
        FaultCase{"half_written", {.code = ErrorCode::kIo, .half_written = true, .writes_only = true}, true},
        FaultCase{"dying_disk", {.code = ErrorCode::kIo, .stays = true}, true},
        FaultCase{"disk_full", {.code = ErrorCode::kNoSpace, .stays = true, .half_written = true}, false}),
    [](const auto& row) { return row.param.name; });

TEST_F(CommitFault, AReadThatFailsLeavesTheTargetAlone) {
  bool hit = true;
  for (std::int64_t n = 1; hit; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    const auto target = Target(false);
    io::FaultyStorage faulty(source_, {.at_call = n});
    const auto ran = RunJob(*job_, faulty, *target, {.threads = 2});
    hit = faulty.hit();
    EXPECT_EQ(ran.has_value(), !hit);
    ExpectOldOrNew(*target, false);
    ASSERT_THAT(RunJob(*job_, source_, *target, {.replace = true, .resume = true}), IsOk());
    ExpectFinished(*target);
    if (HasFailure()) return;
  }
}

class CrashReplay : public CommitFault, public ::testing::WithParamInterface<std::tuple<bool, int>> {};

TEST_P(CrashReplay, EveryPrefixLeavesAbsentOldOrNewAndCanBeResumed) {
  const auto [old, threads] = GetParam();
  const auto target = Target(old);
  target->StartRecord();
  ASSERT_THAT(RunJob(*job_, source_, *target, {.replace = old, .threads = threads}), IsOk());
  ExpectFinished(*target);
  const std::size_t operations = target->record_size();
  ASSERT_GT(operations, 50U);
  bool absent_or_old = false;
  for (std::size_t i = 0; i <= operations; ++i) {
    for (const io::Unsynced unsynced : {io::Unsynced::kLost, io::Unsynced::kKept, io::Unsynced::kSome}) {
      SCOPED_TRACE("crash before operation " + std::to_string(i) + ": " + target->Describe(i) + ", unsynced " +
                   std::to_string(static_cast<int>(unsynced)));
      const auto crashed = target->AfterCrash(i, unsynced, i);
      ExpectOldOrNew(*crashed, old);
      absent_or_old = absent_or_old || crashed->Files(kTarget) != new_;
      ASSERT_THAT(RunJob(*job_, source_, *crashed, {.replace = true, .resume = true}), IsOk());
      ExpectFinished(*crashed);
      if (HasFailure()) return;
    }
  }
  EXPECT_TRUE(absent_or_old);
}

INSTANTIATE_TEST_SUITE_P(All, CrashReplay, ::testing::Combine(::testing::Bool(), ::testing::Values(1, 4)));

/// Two crashes in a row: the second one hits the resumed run.
TEST_F(CommitFault, AResumedRunMayCrashAgain) {
  const auto target = Target(false);
  target->StartRecord();
  ASSERT_THAT(RunJob(*job_, source_, *target, {}), IsOk());
  for (std::size_t i = 10; i < target->record_size(); i += 11) {
    const auto crashed = target->AfterCrash(i, io::Unsynced::kSome, i);
    crashed->StartRecord();
    ASSERT_THAT(RunJob(*job_, source_, *crashed, {.replace = true, .resume = true}), IsOk());
    for (std::size_t j = 3; j < crashed->record_size(); j += 17) {
      SCOPED_TRACE("crash before operation " + std::to_string(i) + ", then before " + std::to_string(j));
      const auto again = crashed->AfterCrash(j, io::Unsynced::kSome, j);
      ASSERT_THAT(RunJob(*job_, source_, *again, {.replace = true, .resume = true}), IsOk());
      ExpectFinished(*again);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace crossdock::execute
