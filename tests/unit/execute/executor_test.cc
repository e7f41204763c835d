// SPDX-License-Identifier: Apache-2.0
#include "execute/executor.h"

#include <atomic>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "execute/box_runs.h"
#include "io/counting_storage.h"
#include "io/faulty_storage.h"
#include "io/staging.h"
#include "plan/share_source.h"
#include "quantize/block.h"
#include "result_matchers.h"
#include "unit/execute/encoded_reader.h"
#include "unit/execute/small_job.h"

namespace crossdock::execute {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Files = std::map<std::string, std::string>;

/// What lies in the staging directory, the journal aside.
Files Written(const io::MemoryStorage& storage, const std::string& dir = "/out") {
  Files files = storage.Files(dir);
  files.erase(".crossdock-journal");
  return files;
}

void ExpectSame(const Files& found, const Files& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, bytes] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    const std::string& other = found.at(name);
    ASSERT_EQ(other.size(), bytes.size()) << name;
    const auto differ = std::mismatch(bytes.begin(), bytes.end(), other.begin());
    EXPECT_TRUE(differ.first == bytes.end()) << name << " differs at " << (differ.first - bytes.begin());
  }
}

class ExecutorTest : public ::testing::Test {
 protected:
  void MakeJob(const SmallJobOptions& options = {}) {
    auto made = SmallJob::Make(source_, options);
    ASSERT_THAT(made, IsOk());
    job_ = std::move(*made);
    ASSERT_THAT(target_.MakeDir("/out"), IsOk());
  }
  io::MemoryStorage source_;
  io::MemoryStorage target_;
  std::unique_ptr<SmallJob> job_;
};

TEST_F(ExecutorTest, WritesTheExpectedBytesWhateverTheThreadsAndTheMemory) {
  for (const bool crc : {true, false}) {
    for (const std::int64_t task_bytes : {16 << 10, 64 << 10, 4 << 20}) {
      io::MemoryStorage source;
      SmallJobOptions job_options;
      job_options.wants_crc32 = crc;
      job_options.task_bytes = task_bytes;
      job_options.memory = 64 << 20;
      ASSERT_OK_AND_ASSIGN(const auto job, SmallJob::Make(source, job_options));
      for (const int threads : {1, 2, 8}) {
        SCOPED_TRACE(std::to_string(threads) + " threads, tasks of " + std::to_string(task_bytes));
        io::MemoryStorage target;
        ASSERT_THAT(target.MakeDir("/out"), IsOk());
        ExecuteOptions options;
        options.threads = threads;
        ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job->Run(source, target, "/out", options));
        EXPECT_LE(report.peak_buffer_bytes, options.memory);
        ExpectSame(Written(target), job->ExpectedFiles());
      }
    }
  }
}

TEST_F(ExecutorTest, EncodedChunksAreDecodedOnceInMemoryOrThroughAFile) {
  for (const std::int64_t memory : {1 << 20, 64 << 20}) {
    io::MemoryStorage source;
    SmallJobOptions job_options;
    job_options.encoded = true;
    job_options.memory = memory;
    job_options.task_bytes = 64 << 10;
    ASSERT_OK_AND_ASSIGN(const auto job, SmallJob::Make(source, job_options));
    for (const int threads : {1, 8}) {
      io::MemoryStorage target;
      ASSERT_THAT(target.MakeDir("/out"), IsOk());
      ExecuteOptions options;
      options.threads = threads;
      options.memory = memory;
      const auto before = static_cast<EncodedReader&>(*job->reader).opened();
      ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job->Run(source, target, "/out", options));
      ExpectSame(Written(target), job->ExpectedFiles());  // and no scratch file is left
      EXPECT_LE(report.peak_buffer_bytes, memory);
      std::int64_t stored = 0;
      int chunks = 0;
      for (const Entry& entry : job->reader->catalog().entries) {
        for (const Chunk& chunk : entry.chunks) {
          stored += chunk.bytes.length;
          chunks += chunk.bytes.length > 0 ? 1 : 0;
        }
      }
      EXPECT_EQ(report.bytes_read, stored);
      EXPECT_EQ(static_cast<EncodedReader&>(*job->reader).opened() - before, chunks);
    }
  }
}

TEST_F(ExecutorTest, DigestsAreThoseOfTheTensorsBytes) {
  MakeJob();
  ExecuteOptions options;
  options.digests = true;
  options.threads = 4;
  ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job_->Run(source_, target_, "/out", options));
  const auto& entries = job_->placement.catalog.entries;
  ASSERT_EQ(report.digests.size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].chunks.size() > 1 && entries[i].name != "big" && entries[i].name != "emb") continue;
    EXPECT_EQ(report.digests[i], DigestOf(std::as_bytes(std::span(job_->expected.at(entries[i].name)))))
        << entries[i].name;
  }
}

TEST_F(ExecutorTest, ReadsAndWritesEveryByteOnce) {
  MakeJob();
  io::CountingStorage source(source_);
  io::CountingStorage target(target_);
  ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job_->Run(source, target, "/out", {}));
  std::int64_t source_bytes = 0;
  for (const FileRef& file : job_->reader->catalog().files) source_bytes += file.identity.size;
  EXPECT_LE(source.Of(io::Call::kRead).bytes, source_bytes * 102 / 100);
  EXPECT_EQ(source.Of(io::Call::kOpenRead).calls, 2) << "each source file is opened once";
  EXPECT_EQ(report.bytes_read, source.Of(io::Call::kRead).bytes);
  std::int64_t target_bytes = 0;
  for (const FileRef& file : job_->placement.catalog.files) {
    target_bytes += file.identity.size;
    const std::string path = "/out/" + file.path;
    EXPECT_EQ(target.Of(io::Call::kWrite, path).bytes, file.identity.size) << path;
    EXPECT_GE(target.Of(io::Call::kSync, path).calls, 1) << path;
  }
  EXPECT_EQ(report.bytes_written, target_bytes);
}

/// Without checksums to make, a storage that copies by itself is asked to: only what is arranged passes through the executor.
TEST_F(ExecutorTest, LongRunsAreCopiedInsideTheStorage) {
  std::int64_t calls[2] = {};
  for (const bool crc : {false, true}) {
    io::MemoryStorage memory;
    SmallJobOptions job_options;
    job_options.wants_crc32 = crc;
    ASSERT_OK_AND_ASSIGN(const auto job, SmallJob::Make(memory, job_options));
    ASSERT_THAT(memory.MakeDir("/out"), IsOk());
    io::CountingStorage source(memory);
    ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job->Run(source, memory, "/out", {}));
    ExpectSame(Written(memory), job->ExpectedFiles());
    calls[crc ? 1 : 0] = source.Of(io::Call::kRead).calls;
    EXPECT_EQ(report.bytes_read, source.Of(io::Call::kRead).bytes);
  }
  EXPECT_LT(calls[0], calls[1]) << "a copy takes more at a time than a slice that is summed up";
}

TEST_F(ExecutorTest, ProgressMovesInsideLargeTensorsAndEndsAtTheTotal) {
  MakeJob();
  std::vector<Progress> told;
  ExecuteOptions options;
  options.on_progress = [&](const Progress& p) { told.push_back(p); };
  ASSERT_THAT(job_->Run(source_, target_, "/out", options), IsOk());
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().bytes_done, job_->plan.bytes_written);
  EXPECT_EQ(told.back().bytes_total, job_->plan.bytes_written);
  for (std::size_t i = 1; i < told.size(); ++i) EXPECT_GE(told[i].bytes_done, told[i - 1].bytes_done);
}

TEST_F(ExecutorTest, ASourceThatChangedBeforeIsRefused) {
  MakeJob();
  ASSERT_OK_AND_ASSIGN(const auto file, source_.OpenWrite("/source/part1"));
  const std::byte zero{};
  ASSERT_THAT(file->WriteAt(0, std::span(&zero, 1)), IsOk());
  EXPECT_THAT(job_->Run(source_, target_, "/out", {}), IsError(ErrorCode::kCorrupt, HasSubstr("changed while")));
}

/// Does something when the n-th read is asked for.
class AtRead final : private io::CallObserver, public io::ObservedStorage {
 public:
  AtRead(io::Storage& inner, int n, std::function<void()> action)
      : ObservedStorage(inner, *this), n_(n), action_(std::move(action)) {}

 private:
  Verdict OnCall(const io::CallInfo& info) override {
    if (info.call == io::Call::kRead && ++reads_ == n_) action_();
    return {};
  }
  std::atomic<int> reads_ = 0;
  int n_;
  std::function<void()> action_;
};

TEST_F(ExecutorTest, ASourceThatChangesMeanwhileIsRefused) {
  for (const bool truncate : {false, true}) {
    io::MemoryStorage memory;
    ASSERT_OK_AND_ASSIGN(const auto job, SmallJob::Make(memory, {}));
    AtRead source(memory, 3, [&] {
      auto file = memory.OpenWrite("/source/part0");
      const std::byte zero{};
      ASSERT_THAT(truncate ? (*file)->Truncate(10) : (*file)->WriteAt(0, std::span(&zero, 1)), IsOk());
    });
    io::MemoryStorage target;
    ASSERT_THAT(target.MakeDir("/out"), IsOk());
    EXPECT_THAT(job->Run(source, target, "/out", {}), IsError(ErrorCode::kCorrupt, HasSubstr("changed while")));
  }
}

TEST_F(ExecutorTest, AnInterruptedRunGoesOnWhereItStopped) {
  MakeJob({.task_bytes = 64 << 10});
  std::stop_source stop;
  ExecuteOptions options;
  options.stop = stop.get_token();
  options.journal_bytes = 1;
  AtRead source(source_, 30, [&] { stop.request_stop(); });
  EXPECT_THAT(job_->Run(source, target_, "/out", options), IsError(ErrorCode::kCancelled, AllOf(HasSubstr("interrupted"), Not(HasSubstr("--resume")))));

  options.stop = {};
  options.resume = true;
  options.digests = false;
  io::CountingStorage counting(source_);
  ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job_->Run(counting, target_, "/out", options));
  EXPECT_GT(report.tasks_resumed, 10);
  EXPECT_LT(report.tasks_resumed, static_cast<std::int64_t>(job_->plan.tasks.size()));
  EXPECT_LT(counting.Of(io::Call::kRead).bytes, job_->plan.bytes_read);
  ExpectSame(Written(target_), job_->ExpectedFiles());

  ASSERT_OK_AND_ASSIGN(const ExecuteReport again, job_->Run(source_, target_, "/out", options));
  EXPECT_EQ(again.tasks_resumed, static_cast<std::int64_t>(job_->plan.tasks.size())) << "all is done";
  ExpectSame(Written(target_), job_->ExpectedFiles());
}

TEST_F(ExecutorTest, AResumedRunWritesNoFrameOverASeal) {
  MakeJob({.task_bytes = 16 << 10, .big_bytes = 100'000, .frames_under_seals = true});
  std::stop_source stop;
  ExecuteOptions options;
  options.stop = stop.get_token();
  options.journal_bytes = 1;
  AtRead source(source_, 30, [&] { stop.request_stop(); });
  ASSERT_THAT(job_->Run(source, target_, "/out", options), IsError(ErrorCode::kCancelled, AllOf(HasSubstr("interrupted"), Not(HasSubstr("--resume")))));
  options.stop = {};
  options.resume = true;
  ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job_->Run(source_, target_, "/out", options));
  EXPECT_GT(report.tasks_resumed, 10);
  ExpectSame(Written(target_), job_->ExpectedFiles());
}

/// The target's bytes by the ranges that a run reports: each tensor's chunks as they must be encoded.
void ExpectEncoded(const SmallJob& job, const ExecuteReport& report, const Files& files) {
  const Catalog& target = job.placement.catalog;
  std::map<std::int32_t, std::int64_t> sizes;
  std::size_t chunks = 0;
  for (const EncodedChunk& one : report.encoded) {
    const Entry& entry = target.entries[static_cast<std::size_t>(one.entry)];
    const Chunk& chunk = entry.chunks[static_cast<std::size_t>(one.chunk)];
    if (CheckedCount(chunk.box.sizes) == 0) continue;
    const std::string& file = files.at(target.files[static_cast<std::size_t>(chunk.file)].path);
    const std::string found = file.substr(static_cast<std::size_t>(one.bytes.offset), static_cast<std::size_t>(one.bytes.length));
    std::string elements;
    for (BoxRuns runs(entry.shape, chunk.box, ElementSize(entry.dtype)); !runs.done(); runs.Next()) {
      elements += job.expected.at(entry.name).substr(static_cast<std::size_t>(runs.offset()), static_cast<std::size_t>(runs.length()));
    }
    ASSERT_OK_AND_ASSIGN(const std::string expected, job.writer.Encode(target, one.entry, one.chunk, std::as_bytes(std::span(elements))));
    EXPECT_TRUE(found == expected) << entry.name;
    sizes[chunk.file] += one.bytes.length;
    ++chunks;
  }
  EXPECT_GT(chunks, 10U);
  for (const auto& [file, size] : sizes) {
    EXPECT_EQ(static_cast<std::int64_t>(files.at(target.files[static_cast<std::size_t>(file)].path).size()), size);  // nothing between, nothing behind
    EXPECT_EQ(report.file_ends[static_cast<std::size_t>(file)], size);
  }
}

TEST_F(ExecutorTest, EncodedChunksLieTheSameWhateverTheThreadsAndInterruptions) {
  MakeJob({.wants_crc32 = false, .memory = 16 << 20, .task_bytes = 64 << 10, .encodes = true});
  ExecuteOptions options;
  options.memory = 16 << 20;
  options.digests = true;
  ASSERT_OK_AND_ASSIGN(const ExecuteReport whole, job_->Run(source_, target_, "/out", options));
  const Files expected = Written(target_);
  ExpectEncoded(*job_, whole, expected);
  std::int64_t resumed = 0;
  for (const int threads : {1, 2, 8}) {
    for (const int stop_at : {0, 5, 20, 40}) {
      SCOPED_TRACE(std::to_string(threads) + " threads, stopped at read " + std::to_string(stop_at));
      io::MemoryStorage target;
      ASSERT_THAT(target.MakeDir("/out"), IsOk());
      options.threads = threads;
      options.journal_bytes = 1;
      options.resume = false;
      std::stop_source stop;
      options.stop = stop.get_token();
      AtRead source(source_, stop_at, [&] { stop.request_stop(); });
      auto first = job_->Run(source, target, "/out", options);
      if (!first) {
        EXPECT_THAT(first, IsError(ErrorCode::kCancelled, HasSubstr("")));
        options.stop = {};
        options.resume = true;
        options.threads = 9 - threads;
        first = job_->Run(source_, target, "/out", options);
        ASSERT_THAT(first, IsOk());
        resumed += first->tasks_resumed;
      }
      EXPECT_LE(first->peak_buffer_bytes, options.memory);
      EXPECT_EQ(first->digests, whole.digests);
      ExpectSame(Written(target), expected);
    }
  }
  EXPECT_GT(resumed, 5);  // some of them went on where they stopped
}

TEST_F(ExecutorTest, EncodedChunksThatAreLostMeanStartingOver) {
  MakeJob({.wants_crc32 = false, .memory = 16 << 20, .encodes = true});
  ExecuteOptions options;
  options.memory = 16 << 20;
  ASSERT_THAT(job_->Run(source_, target_, "/out", options), IsOk());
  const Files expected = Written(target_);
  options.resume = true;
  ASSERT_OK_AND_ASSIGN(const ExecuteReport again, job_->Run(source_, target_, "/out", options));
  EXPECT_EQ(again.tasks_resumed, static_cast<std::int64_t>(job_->plan.tasks.size()));
  auto file = target_.OpenWrite("/out/part/shard_1.raw");
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Truncate(10), IsOk());
  ASSERT_OK_AND_ASSIGN(const ExecuteReport anew, job_->Run(source_, target_, "/out", options));
  EXPECT_EQ(anew.tasks_resumed, 0);
  ExpectSame(Written(target_), expected);
}

TEST_F(ExecutorTest, AResumedRunHasTheSameDigests) {
  MakeJob({.task_bytes = 64 << 10});
  ExecuteOptions options;
  options.digests = true;
  ASSERT_OK_AND_ASSIGN(const ExecuteReport whole, job_->Run(source_, target_, "/out", options));
  io::MemoryStorage second;
  ASSERT_THAT(second.MakeDir("/out"), IsOk());
  std::stop_source stop;
  options.stop = stop.get_token();
  AtRead source(source_, 30, [&] { stop.request_stop(); });
  ASSERT_THAT(job_->Run(source, second, "/out", options), IsError(ErrorCode::kCancelled, HasSubstr("")));
  options.stop = {};
  options.resume = true;
  ASSERT_OK_AND_ASSIGN(const ExecuteReport resumed, job_->Run(source_, second, "/out", options));
  EXPECT_GT(resumed.tasks_resumed, 0);
  EXPECT_EQ(resumed.digests, whole.digests);
}

TEST_F(ExecutorTest, AJournalOfAnotherPlanIsRefused) {
  MakeJob();
  ASSERT_THAT(job_->Run(source_, target_, "/out", {}), IsOk());
  job_->plan.hash = "another";
  ExecuteOptions options;
  options.resume = true;
  EXPECT_THAT(job_->Run(source_, target_, "/out", options),
              IsError(ErrorCode::kUsage, HasSubstr("another conversion: its files have changed since")));
}

TEST_F(ExecutorTest, AnotherRequestIsToldByItsWords) {
  MakeJob();
  ExecuteOptions options;
  options.request = {"--to hf", "--tp 1", "--set lr=1"};
  ASSERT_THAT(job_->Run(source_, target_, "/out", options), IsOk());
  EXPECT_THAT(CheckSameRun(target_, "/out", job_->plan, {"something else"}), IsOk());  // the plan decides
  job_->plan.hash = "another";
  EXPECT_THAT(CheckSameRun(target_, "/out", job_->plan, {"--to hf", "--tp 2", "--set lr=1", "--no-optim"}),
              IsError(ErrorCode::kUsage, HasSubstr("expected `--tp 1`, found `--tp 2`, `--no-optim`")));
  EXPECT_THAT(CheckSameRun(target_, "/out", job_->plan, {"--to hf", "--tp 1"}),
              IsError(ErrorCode::kUsage, HasSubstr("expected `--set lr=1`, found nothing of that")));
  EXPECT_THAT(CheckSameRun(target_, "/elsewhere", job_->plan, {}), IsOk());
}

TEST_F(ExecutorTest, AnUnusableJournalMeansStartingOver) {
  MakeJob();
  ExecuteOptions options;
  ASSERT_THAT(job_->Run(source_, target_, "/out", options), IsOk());
  options.resume = true;
  const auto expect_start_over = [&] {
    ASSERT_OK_AND_ASSIGN(const ExecuteReport report, job_->Run(source_, target_, "/out", options));
    EXPECT_EQ(report.tasks_resumed, 0);
    ASSERT_EQ(report.notices.size(), 1U);
    EXPECT_THAT(report.notices[0], HasSubstr("starts over"));
    ExpectSame(Written(target_), job_->ExpectedFiles());
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto journal, target_.OpenWrite(io::JournalPath("/out")));
    ASSERT_THAT(journal->WriteAt(0, std::as_bytes(std::span("junk"))), IsOk());
  }
  expect_start_over();
  {
    ASSERT_OK_AND_ASSIGN(const auto file, target_.OpenWrite("/out/" + job_->placement.catalog.files[1].path));
    ASSERT_THAT(file->Truncate(1), IsOk());
  }
  expect_start_over();
  ASSERT_THAT(target_.RemoveFile("/out/" + job_->placement.catalog.files[0].path), IsOk());
  expect_start_over();
}

TEST_F(ExecutorTest, ATooSmallMemoryIsRefused) {
  MakeJob();
  ExecuteOptions options;
  options.memory = 1000;
  EXPECT_THAT(job_->Run(source_, target_, "/out", options), IsError(ErrorCode::kUsage, HasSubstr("--memory")));
}

TEST_F(ExecutorTest, AFullDiskIsToldBeforeAnyTensorIsRead) {
  MakeJob();
  target_.SetCapacity(100'000);
  io::CountingStorage source(source_);
  EXPECT_THAT(job_->Run(source, target_, "/out", {}), IsError(ErrorCode::kNoSpace, HasSubstr("shard_")));
  EXPECT_EQ(source.Of(io::Call::kRead).calls, 0);
}

TEST_F(ExecutorTest, AReadErrorIsTold) {
  MakeJob({.task_bytes = 64 << 10});
  for (const int threads : {1, 4}) {
    for (std::int64_t n = 1; n < 40; n += 7) {
      io::MemoryStorage target;
      ASSERT_THAT(target.MakeDir("/out"), IsOk());
      io::FaultyStorage faulty(source_, {.at_call = n, .stays = false});
      ExecuteOptions options;
      options.threads = threads;
      EXPECT_THAT(job_->Run(faulty, target, "/out", options), IsError(ErrorCode::kIo, HasSubstr("Input/output")));
    }
  }
}

TEST_F(ExecutorTest, SubByteTensorsAreRefused) {
  MakeJob();
  Catalog catalog = job_->reader->catalog();
  catalog.entries[1].dtype = DType::kF4;
  job_->reader = std::make_unique<RawReader>(std::move(catalog));
  EXPECT_THAT(job_->Run(source_, target_, "/out", {}), IsError(ErrorCode::kUnsupported, HasSubstr("F4")));
}

/// A source whose columns and rows lie with several ranks, to be copied and quantized in every way.
struct SharedJob {
  std::unique_ptr<RawReader> reader;
  std::vector<expr::Expr> exprs;
  RawWriter writer{false};
  formats::Placement placement;
};

SharedJob MakeSharedJob(io::MemoryStorage& source, bool with_nan) {
  SharedJob job;
  Catalog catalog;
  catalog.root = "/source";
  EXPECT_THAT(source.MakeDir("/source"), IsOk());
  std::vector<std::string> files(8);
  const auto add = [&](const std::string& name, const Shape& shape, std::size_t axis) {
    Entry entry{name, Slot::kParam, DType::kF32, shape, {}};
    for (int part = 0; part < 8; ++part) {
      Box box = Box::Whole(shape);
      box.sizes[axis] = shape[axis] / 8;
      box.offsets[axis] = part * box.sizes[axis];
      std::string& file = files[static_cast<std::size_t>(part)];
      entry.chunks.push_back({box, part, {static_cast<std::int64_t>(file.size()), box.count() * 4}});
      for (std::int64_t i = 0; i < box.count(); ++i) {
        float value = static_cast<float>((i * 37 + part * 101 + static_cast<std::int64_t>(name.size())) % 1009 - 500) / 64.0F;
        if (with_nan && part == 5 && i == 3) value = std::nanf("");
        file.append(reinterpret_cast<const char*>(&value), 4);
      }
    }
    catalog.entries.push_back(std::move(entry));
  };
  add("columns", {50, 160}, 1);
  add("rows", {80, 64}, 0);
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::string name = fmt::format("f{}", f);
    EXPECT_THAT(io::WriteSmallFile(source, io::JoinPath(catalog.root, name), files[f]), IsOk());
    const auto info = source.Stat(io::JoinPath(catalog.root, name));
    catalog.files.push_back({name, {info->size, info->mtime_ns, info->inode}});
  }
  Catalog target;
  const auto out = [&](std::string name, const expr::Expr& expr) {
    target.entries.push_back({std::move(name), Slot::kParam, expr->dtype, expr->shape, {}});
    Chunk chunk;
    chunk.box = Box::Whole(expr->shape);
    chunk.shard = static_cast<std::int32_t>(target.entries.size() % 2);
    target.entries.back().chunks.push_back(chunk);
    job.exprs.push_back(expr);
  };
  for (int e = 0; e < 2; ++e) {
    const Entry& entry = catalog.entries[static_cast<std::size_t>(e)];
    const expr::Expr leaf = expr::Leaf(e, DType::kF32, entry.shape);
    const expr::Expr half = *expr::Cast(leaf, DType::kBF16);
    out(entry.name, half);
    expr::Fp8Format block{{16, 24}}, aligned{{10, 20}}, row{{1, entry.shape[1]}}, whole{{entry.shape[0], entry.shape[1]}};
    block.scales = expr::ScaleFormat::kUe8m0;
    whole.whole = true;
    for (const auto& [word, fp8] : {std::pair("block", block), std::pair("aligned", aligned), std::pair("row", row), std::pair("whole", whole)}) {
      out(fmt::format("{}.{}", entry.name, word), *expr::QuantizeValues(half, fp8));
      out(fmt::format("{}.{}.scale", entry.name, word), *expr::QuantizeScales(half, fp8));
    }
  }
  job.reader = std::make_unique<RawReader>(std::move(catalog));
  auto placed = job.writer.LayOut(std::move(target));
  EXPECT_THAT(placed, IsOk());
  job.placement = std::move(*placed);
  return job;
}

plan::PlanOptions SharedPlan(std::int64_t task_bytes) {
  plan::PlanOptions options;
  options.task_bytes = task_bytes;
  return options;
}

/// One after the other, as ranks of 1, 2, 4 and 8 processes.
Result<Files> RunShares(const SharedJob& job, io::MemoryStorage& source, int ranks, std::int64_t task_bytes, const ExecuteOptions& options) {
  io::MemoryStorage target;
  CROSSDOCK_RETURN_IF_ERROR(target.MakeDir("/out"));
  CROSSDOCK_RETURN_IF_ERROR(CreateFiles(target, "/out", job.placement));
  const plan::OwnerOf owner = [ranks](std::int32_t, std::int32_t chunk) { return chunk * ranks / 8; };
  std::vector<plan::Share> shares;
  std::vector<float> amaxes;
  for (int rank = 0; rank < ranks; ++rank) {
    CROSSDOCK_ASSIGN_OR_RETURN(plan::Share share, plan::MakeShareOfSource(job.reader->catalog(), job.placement.catalog, job.exprs, owner, {rank, ranks}, SharedPlan(task_bytes)));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<float> mine, Measure(share.plan, source, *job.reader, job.placement, job.writer, share.amaxes, options));
    amaxes.resize(mine.size(), 0.0F);
    for (std::size_t i = 0; i < mine.size(); ++i) amaxes[i] = quantize::Larger(amaxes[i], mine[i]);
    shares.push_back(std::move(share));
  }
  for (const plan::Share& share : shares) {
    ExecuteOptions mine = options;
    mine.into_existing = true;
    mine.amaxes = amaxes;
    CROSSDOCK_RETURN_IF_ERROR(Execute(share.plan, source, *job.reader, target, "/out", job.placement, {}, job.writer, mine));
  }
  EXPECT_FALSE(target.Files("/out").contains(".crossdock-journal"));
  return Written(target);
}

TEST(SharesTest, TogetherWriteWhatOneProcessWrites) {
  io::MemoryStorage source;
  const SharedJob job = MakeSharedJob(source, false);
  io::MemoryStorage target;
  ASSERT_THAT(target.MakeDir("/out"), IsOk());
  ASSERT_OK_AND_ASSIGN(const plan::Plan plan, plan::MakePlan(job.reader->catalog(), job.placement.catalog, job.exprs, SharedPlan(64 << 10)));
  ASSERT_THAT(Execute(plan, source, *job.reader, target, "/out", job.placement, job.placement.frames, job.writer, {}), IsOk());
  for (const int ranks : {1, 2, 4, 8}) {
    for (const std::int64_t task_bytes : {2 << 10, 1 << 20}) {
      ExecuteOptions options;
      options.threads = ranks % 3;
      ASSERT_OK_AND_ASSIGN(const Files files, RunShares(job, source, ranks, task_bytes, options));
      ExpectSame(files, Written(target));
    }
  }
}

TEST(SharesTest, ValuesThatAreNotFiniteAreRefusedOrTold) {
  io::MemoryStorage source;
  const SharedJob job = MakeSharedJob(source, true);
  EXPECT_THAT(RunShares(job, source, 4, 1 << 20, {}), IsError(ErrorCode::kUnsupported, HasSubstr("the first at [")));
  ExecuteOptions options;
  options.allow_nonfinite = true;
  io::MemoryStorage target;
  ASSERT_THAT(target.MakeDir("/out"), IsOk());
  ASSERT_OK_AND_ASSIGN(const plan::Plan plan, plan::MakePlan(job.reader->catalog(), job.placement.catalog, job.exprs, SharedPlan(64 << 10)));
  ASSERT_THAT(Execute(plan, source, *job.reader, target, "/out", job.placement, job.placement.frames, job.writer, options), IsOk());
  ASSERT_OK_AND_ASSIGN(const Files files, RunShares(job, source, 4, 1 << 20, options));
  ExpectSame(files, Written(target));
}

}  // namespace
}  // namespace crossdock::execute
