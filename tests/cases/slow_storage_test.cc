// SPDX-License-Identifier: Apache-2.0
/// \file  B104: on a file system where every file is a slow stream of its own, shards are written in parallel.
/// The storage lets one write to a file pass at a time and holds each until writes to other files flow beside it. What is
/// counted are the files in work at once; the clock only ends a wait that would never be answered.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "execute/executor.h"
#include "io/memory_storage.h"
#include "io/observed_storage.h"
#include "plan/planner.h"
#include "result_matchers.h"

namespace crossdock::execute {
namespace {

constexpr int kFiles = 8;
constexpr int kTensorsOfAFile = 12;
constexpr std::int64_t kTensorBytes = 256 << 10;
constexpr int kThreads = 8;
constexpr int kAtOnce = 6;
constexpr auto kGivesUp = std::chrono::seconds(20);  ///< far beyond any machine's pause

/// Each file is a stream that takes one write at a time. With `wanted` above 1 the first writes wait until that many
/// streams flow at once: an executor that never has so many files in work never gets there.
class SlowStreams : public io::CallObserver {
 public:
  explicit SlowStreams(int wanted) : wanted_(wanted) {}
  Verdict OnCall(const io::CallInfo& info) override {
    if (info.call != io::Call::kWrite || info.length < 4096) return {};  // tensor data alone
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !flowing_.contains(info.path); });
    flowing_.insert(info.path);
    most_ = std::max(most_, static_cast<int>(flowing_.size()));
    changed_.notify_all();
    const bool met = changed_.wait_for(lock, kGivesUp, [&] { return most_ >= wanted_; });
    if (!met) wanted_ = 0;  // it has failed: the rest need not wait as well
    flowing_.erase(info.path);
    changed_.notify_all();
    return {};
  }
  [[nodiscard]] int most_streams() const { return most_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> flowing_;
  int wanted_;
  int most_ = 0;
};

/// A source of one file, tensor after tensor, and a target of kFiles files that each take their share of them in turn: as a
/// Hugging Face directory becomes another one.
struct Job {
  class Reader final : public formats::CheckpointReader {
   public:
    explicit Reader(Catalog catalog) : catalog_(std::move(catalog)) {}
    const Catalog& catalog() const override { return catalog_; }
    Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
      return catalog_.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)].bytes;
    }
    Result<Value> LoadObject(const ObjectRef&) const override { return MakeError(ErrorCode::kUnsupported, "no objects"); }

   private:
    Catalog catalog_;
  };
  class Writer final : public formats::CheckpointWriter {
   public:
    Result<formats::Placement> LayOut(Catalog target) override {
      for (int i = 0; i < kFiles; ++i) target.files.push_back({"part_" + std::to_string(i), {kTensorsOfAFile * kTensorBytes, 0, 0}});
      for (std::size_t e = 0; e < target.entries.size(); ++e) {
        Chunk& chunk = target.entries[e].chunks[0];
        chunk.file = static_cast<std::int32_t>(e / kTensorsOfAFile);
        chunk.bytes = {static_cast<std::int64_t>(e % kTensorsOfAFile) * kTensorBytes, kTensorBytes};
      }
      formats::Placement placement;
      placement.catalog = std::move(target);
      return placement;
    }
    Result<std::vector<formats::Frame>> Seal(const Catalog&, std::int32_t, std::int32_t, std::uint32_t) const override { return std::vector<formats::Frame>(); }
    Status WriteMetadata(const Catalog&, io::Storage&, const std::string&) override { return OkStatus(); }
    std::vector<FileRef> MetadataFiles() const override { return {}; }
  };

  static Result<std::unique_ptr<Job>> Make(io::Storage& storage) {
    auto job = std::make_unique<Job>();
    std::string data;
    for (std::int64_t i = 0; i < kFiles * kTensorsOfAFile * kTensorBytes; ++i) data.push_back(static_cast<char>((i * 2654435761U) >> 13U));
    CROSSDOCK_RETURN_IF_ERROR(storage.MakeDir("/source"));
    CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, "/source/all", data));
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat("/source/all"));
    Catalog source, target;
    source.root = "/source";
    source.files.push_back({"all", {info.size, info.mtime_ns, info.inode}});
    std::vector<expr::Expr> exprs;
    for (int t = 0; t < kFiles * kTensorsOfAFile; ++t) {
      const std::string number = std::to_string(1000 + t);
      Entry entry{"tensor" + number, Slot::kParam, DType::kU8, {kTensorBytes}, {}};
      Chunk chunk;
      chunk.box = Box::Whole(entry.shape);
      entry.chunks.push_back(chunk);
      target.entries.push_back(entry);
      entry.chunks[0].file = 0;
      entry.chunks[0].bytes = {t * kTensorBytes, kTensorBytes};
      source.entries.push_back(entry);
      exprs.push_back(expr::Leaf(t, DType::kU8, entry.shape));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(job->placement, job->writer.LayOut(std::move(target)));
    plan::PlanOptions options;
    options.memory = 16 << 20;
    options.threads = 8;
    options.task_bytes = 2 * kTensorBytes;
    CROSSDOCK_ASSIGN_OR_RETURN(job->plan, plan::MakePlan(source, job->placement.catalog, exprs, options));
    job->reader = std::make_unique<Reader>(std::move(source));
    return job;
  }

  plan::Plan plan;
  std::unique_ptr<Reader> reader;
  Writer writer;
  formats::Placement placement;
};

struct Ran {
  std::map<std::string, std::string> files;
  int streams = 0;
};

Result<Ran> Convert(const Job& job, io::Storage& source, int threads, int at_once) {
  io::MemoryStorage memory;
  SlowStreams slow(at_once);
  io::ObservedStorage target(memory, slow);
  CROSSDOCK_RETURN_IF_ERROR(memory.MakeDir("/out"));
  ExecuteOptions options;
  options.threads = threads;
  options.memory = 16 << 20;
  CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const ExecuteReport report,
                             Execute(job.plan, source, *job.reader, target, "/out", job.placement, job.placement.frames, job.writer, options));
  Ran ran{memory.Files("/out"), slow.most_streams()};
  std::erase_if(ran.files, [](const auto& file) { return !file.first.starts_with("part_"); });
  return ran;
}

TEST(SlowStorage, B104ShardsAreWrittenInParallelAndTheSame) {
  io::MemoryStorage source;
  ASSERT_OK_AND_ASSIGN(const auto job, Job::Make(source));
  ASSERT_OK_AND_ASSIGN(const Ran one, Convert(*job, source, 1, 1));
  ASSERT_OK_AND_ASSIGN(const Ran eight, Convert(*job, source, kThreads, kAtOnce));
  EXPECT_EQ(one.files.size(), static_cast<std::size_t>(kFiles));
  EXPECT_TRUE(one.files == eight.files);
  EXPECT_EQ(one.streams, 1);
  EXPECT_GE(eight.streams, kAtOnce) << "streams at once";
}

}  // namespace
}  // namespace crossdock::execute
