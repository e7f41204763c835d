// SPDX-License-Identifier: Apache-2.0
#include "convert/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include "convert/demo_model.h"
#include "convert/manifest.h"
#include "convert/receipt.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;

ConvertOptions To(const char* format) {
  ConvertOptions options;
  options.target = "/w/out";
  options.to = format;
  options.threads = 2;
  return options;
}

Result<JobResult> RunInMemory(const DemoModel& model, io::MemoryStorage& storage, const ConvertOptions& options, const Hooks& hooks = {}) {
  CROSSDOCK_ASSIGN_OR_RETURN(Target target, PrepareTarget(model.source, options));
  return RunJob(model.source, &target, storage, options, hooks);
}

TEST(Job, WritesProvesAndCommits) {
  for (const char* format : {"hf", "full-state", "megatron"}) {
    ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
    io::MemoryStorage storage;
    ConvertOptions options = To(format);
    options.verify = true;
    ASSERT_OK_AND_ASSIGN(const JobResult result, RunInMemory(model, storage, options));
    EXPECT_TRUE(result.equal) << format;
    EXPECT_TRUE(result.outcome.verified) << format;
    EXPECT_GT(result.outcome.reopened, 0) << format;
    for (const auto& [path, content] : storage.Files("/w")) EXPECT_EQ(path.find("crossdock-"), std::string::npos) << path;
  }
}

TEST(Job, GivesTheSameBytesWhateverTheThreads) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  std::map<std::string, std::string> first;
  for (int threads : {1, 2, 5}) {
    io::MemoryStorage storage;
    ConvertOptions options = To("megatron");
    options.layout.tp = 2;
    options.layout.pp = 2;
    options.threads = threads;
    ASSERT_THAT(RunInMemory(model, storage, options), IsOk());
    if (first.empty()) first = storage.Files("/w/out");
    EXPECT_EQ(storage.Files("/w/out"), first) << threads << " threads";
  }
}

TEST(Job, RefusesAnExistingTargetAndReplacesWithForce) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  io::MemoryStorage storage;
  ASSERT_THAT(RunInMemory(model, storage, To("hf")), IsOk());
  EXPECT_THAT(RunInMemory(model, storage, To("full-state")), IsError(ErrorCode::kUsage, HasSubstr("--force")));
  ConvertOptions force = To("full-state");
  force.force = true;
  ASSERT_THAT(RunInMemory(model, storage, force), IsOk());
  EXPECT_THAT(storage.Files("/w/out").at("model.safetensors"), HasSubstr("optim/adam_mu/"));
}

TEST(Job, ReplacesNothingButCheckpointsAndSaysSo) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/w/out"), IsOk());
  ASSERT_THAT(RunInMemory(model, storage, To("hf")), IsOk());  // an empty directory needs no --force
  ConvertOptions force = To("hf");
  force.force = true;
  ASSERT_OK_AND_ASSIGN(const JobResult again, RunInMemory(model, storage, force));
  EXPECT_EQ(again.outcome.replaced, "hf");
  io::MemoryStorage home;
  ASSERT_THAT(io::MakeDirs(home, "/w/out"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(home, "/w/out/thesis.tex", "x"), IsOk());
  EXPECT_THAT(RunInMemory(model, home, force), IsError(ErrorCode::kUsage, HasSubstr("`thesis.tex`")));
  EXPECT_EQ(home.Files("/w").size(), 1U);
}

TEST(Job, TellsWhenTheDiskIsTooSmallAndLeavesNothing) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  io::MemoryStorage storage;
  storage.SetCapacity(1 << 20);
  EXPECT_THAT(RunInMemory(model, storage, To("full-state")),
              IsError(ErrorCode::kNoSpace, HasSubstr("there is not enough space for the target, in `/w/out`; expected ")));
  EXPECT_TRUE(storage.Files("/w").empty());
}

TEST(Job, StopsWhenAskedAndResumes) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  io::MemoryStorage whole;
  ASSERT_THAT(RunInMemory(model, whole, To("full-state")), IsOk());
  io::MemoryStorage storage;
  std::stop_source stop;
  Hooks hooks;
  hooks.stop = stop.get_token();
  // Asked at the last moment before the commit: everything is there but the rename.
  hooks.on_progress = [&](const ProgressEvent& event) {
    if (event.phase == "opening the result") stop.request_stop();
  };
  EXPECT_THAT(RunInMemory(model, storage, To("full-state"), hooks), IsError(ErrorCode::kCancelled, HasSubstr("`--resume`")));
  EXPECT_FALSE(io::Exists(storage, "/w/out"));
  ConvertOptions resume = To("full-state");
  resume.resume = true;
  ASSERT_OK_AND_ASSIGN(const JobResult result, RunInMemory(model, storage, resume));
  EXPECT_GT(result.outcome.report.tasks_resumed, 0);
  EXPECT_EQ(storage.Files("/w/out"), whole.Files("/w/out"));
}

/// A run into /w/out that is interrupted right before its commit.
void Interrupt(const DemoModel& model, io::MemoryStorage& storage, const ConvertOptions& options) {
  std::stop_source stop;
  Hooks hooks;
  hooks.stop = stop.get_token();
  hooks.on_progress = [&](const ProgressEvent& event) {
    if (event.phase == "opening the result") stop.request_stop();
  };
  ASSERT_THAT(RunInMemory(model, storage, options, hooks), IsError(ErrorCode::kCancelled, HasSubstr("--resume")));
}

TEST(Job, ResumesNoOtherConversionAndLeavesItsWork) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  io::MemoryStorage storage;
  Interrupt(model, storage, To("full-state"));
  const auto before = storage.Files("/w");
  ConvertOptions other = To("hf");
  other.resume = true;
  other.dtype = "fp32";
  EXPECT_THAT(RunInMemory(model, storage, other),
              IsError(ErrorCode::kUsage, HasSubstr("expected `--to full-state`, found `--to hf`, `--dtype fp32`\nhint: repeat the command as it was")));
  auto after = storage.Files("/w");
  after.erase(".out.crossdock-lock");
  auto expected = before;
  expected.erase(".out.crossdock-lock");
  EXPECT_EQ(after, expected);
  // Without --resume the work is dropped, and that is told.
  ASSERT_OK_AND_ASSIGN(const JobResult result, RunInMemory(model, storage, To("hf")));
  EXPECT_TRUE(result.outcome.dropped);
}

TEST(Job, SaysThatATargetIsCompleteAlready) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  io::MemoryStorage storage;
  ASSERT_THAT(RunInMemory(model, storage, To("hf")), IsOk());
  const auto before = storage.Files("/");
  ConvertOptions again = To("hf");
  again.resume = true;
  again.verify = true;
  {
    ASSERT_OK_AND_ASSIGN(const JobResult result, RunInMemory(model, storage, again));
    EXPECT_TRUE(result.outcome.complete_before);
    EXPECT_TRUE(result.outcome.verified);
    EXPECT_EQ(result.outcome.report.bytes_written, 0);
  }
  ConvertOptions other = To("full-state");
  other.resume = true;
  EXPECT_THAT(RunInMemory(model, storage, other),
              IsError(ErrorCode::kUsage, HasSubstr("the target exists already, and is not what this command writes")));
  again.receipt = "/w/receipt.json";
  EXPECT_THAT(RunInMemory(model, storage, again), IsError(ErrorCode::kUsage, HasSubstr("leave `--receipt` out")));
  EXPECT_EQ(storage.Files("/"), before);
}

TEST(Job, SumsUpForPeopleAndPrograms) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  io::MemoryStorage storage;
  ConvertOptions options = To("megatron");
  options.receipt = "r.json";
  ASSERT_OK_AND_ASSIGN(Target target, PrepareTarget(model.source, options));
  ASSERT_OK_AND_ASSIGN(const JobResult result, RunJob(model.source, &target, storage, options, {}));
  const Report report = MakeSummary(model.source, target, options, TallyOf(model.source, target), result.outcome);
  EXPECT_THAT(report.text, HasSubstr("load it with:\n  --load /w/out "));
  ASSERT_OK_AND_ASSIGN(const Value json, ParseJson(report.json));
  EXPECT_EQ(json.GetInt("slots.adam_nu.tensors_read"), 47);
  EXPECT_EQ(json.GetInt("slots.adam_nu.tensors_written"), 11);
  EXPECT_EQ(json.GetString("target.format"), "megatron");
  ASSERT_OK_AND_ASSIGN(const Value receipt, ParseJson(MakeReceipt(model.source, target, result.outcome.report)));
  EXPECT_EQ(receipt.GetString("plan_hash"), target.plan.hash);
  EXPECT_EQ(receipt.Find("tensors")->as_sequence()->size(), target.placement.catalog.entries.size());
  ASSERT_OK_AND_ASSIGN(const Value manifest, ParseJson(MakeManifest(model.source, target)));
  for (const Value& row : *manifest.Find("tensors")->as_sequence()) {
    EXPECT_EQ(row.GetString("partition"), "adam");
    EXPECT_TRUE(row.GetString("rule").has_value());
    EXPECT_FALSE(row.Find("sources")->as_sequence()->empty());
  }
}

TEST(Job, ReplacesAReportWhole) {
  io::MemoryStorage storage;
  ASSERT_THAT(WriteReportFile(storage, "reports/a.json", "one"), IsOk());
  ASSERT_THAT(WriteReportFile(storage, "reports/a.json", "two"), IsOk());
  EXPECT_EQ(storage.Files("reports"), (std::map<std::string, std::string>{{"a.json", "two"}}));
}

TEST(Job, ReplacesNothingButFilesByAReport) {
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  // As /dev/null: a rename would put a file in its place.
  const std::string pipe = testing::TempDir() + "report_pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(WriteReportFile(*storage, pipe, "one"), IsError(ErrorCode::kUsage, HasSubstr("a device, a pipe")));
  EXPECT_THAT(WriteReportFile(*storage, testing::TempDir(), "one"), IsError(ErrorCode::kUsage, HasSubstr("a directory")));
  ASSERT_OK_AND_ASSIGN(const io::FileInfo info, storage->Stat(pipe));
  EXPECT_EQ(info.kind, io::FileKind::kOther);
  (void)unlink(pipe.c_str());
}

}  // namespace
}  // namespace crossdock::convert
