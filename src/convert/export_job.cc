// SPDX-License-Identifier: Apache-2.0
#include "convert/export_job.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "convert/agree.h"
#include "convert/export_common.h"
#include "convert/export_target.h"
#include "convert/guarded.h"
#include "convert/job.h"
#include "convert/random_word.h"
#include "dialects/hf/fp8_config.h"
#include "execute/executor.h"
#include "formats/recognise.h"
#include "io/staging.h"
#include "quantize/block.h"

namespace crossdock::convert {
namespace {

using SaveClock = std::chrono::steady_clock;

constexpr int kNiceness = 10;
constexpr const char* kWordFile = ".crossdock-save";
constexpr double kLongestWait = 10 * 365.25 * 86400;        ///< seconds; more is not told apart, and clocks would overflow

/// What a rank says of its share once it is written: bytes, a line break, and pieces of chunks that others write the rest of.
std::string PackWritten(const execute::ExecuteReport& done) {
  std::string text = fmt::format("{}\n", done.bytes_written);
  for (const execute::LoosePiece& piece : done.loose) {
    text += fmt::format("{} {} {} {} {}\n", piece.entry, piece.chunk, piece.offset, piece.length, piece.crc32);
  }
  return text;
}

std::vector<execute::LoosePiece> UnpackLoose(const std::vector<std::string>& written) {
  std::vector<execute::LoosePiece> out;
  for (const std::string& rank : written) {
    std::istringstream text(rank);
    std::int64_t bytes = 0;
    text >> bytes;
    for (execute::LoosePiece piece; text >> piece.entry >> piece.chunk >> piece.offset >> piece.length >> piece.crc32;) out.push_back(piece);
  }
  return out;
}

class RankJob final : public SavingJob {
 public:
  RankJob(SaveWork work, std::int64_t step, std::string target) : work_(std::move(work)), run_(work_.storage) {
    report_.step = step;
    report_.path = std::move(target);
  }
  ~RankJob() override {
    if (thread_.joinable()) thread_.join();
  }

  RunStorage& run() override { return run_; }
  void Copied(std::int64_t bytes) override { report_.copied_bytes = bytes; }
  void RunHere(const Status& before) override {
    Finish(Guarded([&] { return Outcome(before); }));
  }
  void RunBeside(const Status& before) override {
    try {
      thread_ = std::thread([this, before] {
        (void)pthread_setname_np(pthread_self(), "crossdock-save");
        (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);
        RunHere(before);
      });
    } catch (const std::exception& refused) {
      RunHere(MakeError(ErrorCode::kIo, "no thread can be started for a save").WithFound(refused.what()));
    }
  }

  bool Done() const override {
    const std::lock_guard lock(mutex_);
    return result_.has_value();
  }

  Result<ExportReport> Wait(double seconds, std::stop_token stop) override {
    if (std::isnan(seconds)) return MakeError(ErrorCode::kUsage, "a save is waited for some time").WithFound("NaN seconds");
    seconds = std::min(seconds, kLongestWait);
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return result_.has_value(); };
    const bool there = seconds < 0 ? changed_.wait(lock, stop, ended) : changed_.wait_for(lock, stop, std::chrono::duration<double>(seconds), ended);
    if (!there && stop.stop_requested()) return MakeError(ErrorCode::kCancelled, "the waiting was interrupted, and the save goes on").WithPath(report_.path);
    if (!there) {
      return MakeError(ErrorCode::kIo, "the save has not ended").WithPath(report_.path).WithExpected(fmt::format("its end within {} seconds", seconds)).WithFound("it is still at work");
    }
    return *result_;
  }

 private:
  void Finish(Result<ExportReport> result) {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    changed_.notify_all();
  }

  Result<ExportReport> Outcome(const Status& before) {
    std::unique_ptr<io::Staging> staging;
    const Status done = Guarded([&] { return Steps(before, &staging); });
    if (!done) {
      Error error = done.error();
      if (staging != nullptr) {
        const Status removed = staging->Discard();
        if (!removed) error.context.push_back("removing the staging directory failed too: " + removed.error().message);
      }
      return error;
    }
    report_.seconds = std::chrono::duration<double>(SaveClock::now() - start_).count();
    return report_;
  }

  Status Steps(const Status& before, std::unique_ptr<io::Staging>* staging) {
    const bool leads = work_.comm.rank() == 0;
    const Result<std::string> begun = !before ? Result<std::string>(before.error()) : leads ? Guarded([&] { return Begin(staging); }) : Result<std::string>("");
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> words, Agree(work_.comm, "making the staging directory", begun));
    const std::size_t line = words[0].find('\n');
    const std::string dir = words[0].substr(line + 1);
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> measured, Agree(work_.comm, "measuring", Guarded([&] { return Measure(dir, words[0].substr(0, line)); })));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<float> amaxes, Largest(measured));
    const Result<std::string> wrote = Guarded([&] { return Write(dir, amaxes); });
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> written, Agree(work_.comm, "writing", wrote));
    for (const std::string& rank : written) report_.bytes += std::atoll(rank.c_str());
    return AgreeOn(work_.comm, "putting the result in place", leads ? Guarded([&] { return Commit(**staging, written); }) : OkStatus());
  }

  void Tell(const char* phase) const {
    if (work_.hooks.on_progress) work_.hooks.on_progress({phase, 0, 0, ""});
  }

  /// A word and the directory.
  Result<std::string> Begin(std::unique_ptr<io::Staging>* staging) {
    Tell("making the staging directory");
    CROSSDOCK_RETURN_IF_ERROR(CheckReplaces(work_.storage, report_.path, work_.plan.target.kind));
    CROSSDOCK_ASSIGN_OR_RETURN(*staging, io::Staging::Begin(work_.storage, report_.path, {true, false}));
    const std::string& dir = (*staging)->dir();
    CROSSDOCK_RETURN_IF_ERROR(CheckSpace(work_.storage, work_.plan.target, **staging));
    CROSSDOCK_RETURN_IF_ERROR(execute::CreateFiles(work_.storage, dir, work_.plan.target.placement));
    const std::string word = RandomWord();
    CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(work_.storage, io::JoinPath(dir, kWordFile), word));
    return word + "\n" + io::AbsolutePath(dir);
  }

  /// All ranks write into one directory, or nothing comes together.
  Status SeeWord(const std::string& dir, const std::string& word) {
    const std::string path = io::JoinPath(dir, kWordFile);
    const auto end = SaveClock::now() + kSeenWithin;
    std::string found;
    do {
      const Result<std::string> text = io::ReadSmallFile(work_.storage, path);
      found = text ? *text : "nothing";
      if (found == word) return OkStatus();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } while (SaveClock::now() < end);
    return MakeError(ErrorCode::kUsage, "this rank does not see the directory that rank 0 made").WithPath(path).WithExpected(word).WithFound(Printable(found))
        .WithHint("all ranks must write to one file system under one path");
  }

  execute::ExecuteOptions How() const {
    execute::ExecuteOptions how;
    how.threads = work_.plan.target.threads;
    how.memory = work_.options.memory;
    how.allow_nonfinite = std::ranges::find(work_.options.allow, "nonfinite") != work_.options.allow.end();
    how.stop = work_.hooks.stop;
    how.into_existing = true;
    return how;
  }

  Result<std::string> Measure(const std::string& dir, const std::string& word) {
    CROSSDOCK_RETURN_IF_ERROR(SeeWord(dir, word));
    const ExportPlan& plan = work_.plan;
    if (plan.share.amaxes == 0) return std::string();
    Tell("measuring");
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<float> mine, execute::Measure(plan.share.plan, run_, *plan.source.reader, plan.target.placement,
                                                                              *plan.target.writer, plan.share.amaxes, How()));
    return std::string(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(float));
  }

  /// Of each block, over all ranks.
  Result<std::vector<float>> Largest(const std::vector<std::string>& measured) const {
    std::vector<float> all(static_cast<std::size_t>(work_.plan.share.amaxes), 0.0F);
    std::vector<float> one(all.size());
    for (const std::string& bytes : measured) {
      if (bytes.size() != all.size() * sizeof(float)) {
        return MakeError(ErrorCode::kUsage, "ranks measured different blocks").WithExpected(fmt::format("{} values", all.size())).WithFound(fmt::format("{} bytes", bytes.size()));
      }
      if (all.empty()) continue;
      std::memcpy(one.data(), bytes.data(), bytes.size());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = quantize::Larger(all[i], one[i]);
    }
    return all;
  }

  Result<std::string> Write(const std::string& dir, const std::vector<float>& amaxes) {
    const ExportPlan& plan = work_.plan;
    execute::ExecuteOptions how = How();
    how.amaxes = amaxes;
    how.on_progress = [this](const execute::Progress& p) {
      if (work_.hooks.on_progress) work_.hooks.on_progress({"writing", p.bytes_done, p.bytes_total, p.current});
    };
    CROSSDOCK_ASSIGN_OR_RETURN(const execute::ExecuteReport done, execute::Execute(plan.share.plan, run_, *plan.source.reader, work_.storage, dir,
                                                                                  plan.target.placement, {}, *plan.target.writer, how));
    report_.own_bytes = done.bytes_written;
    return PackWritten(done);
  }

  Status Commit(io::Staging& staging, const std::vector<std::string>& written) {
    Tell("writing metadata");
    Target& target = work_.plan.target;
    const std::string& dir = staging.dir();
    CROSSDOCK_RETURN_IF_ERROR(work_.storage.RemoveFile(io::JoinPath(dir, kWordFile)));
    CROSSDOCK_RETURN_IF_ERROR(execute::SealLoose(work_.storage, dir, target.placement, *target.writer, UnpackLoose(written)));
    CROSSDOCK_RETURN_IF_ERROR(WriteSideFiles(work_.storage, target, work_.storage, dir));
    CROSSDOCK_RETURN_IF_ERROR(target.writer->WriteMetadata(target.placement.catalog, work_.storage, dir));
    const bool megatron = target.kind == formats::Kind::kMegatron;
    if (megatron) CROSSDOCK_RETURN_IF_ERROR(WriteCommon(work_.storage, dir, target.placement.catalog, work_.common, report_.step));
    CROSSDOCK_ASSIGN_OR_RETURN(const Source result, OpenResult(work_.storage, dir, target.kind, target));
    if (megatron) CROSSDOCK_RETURN_IF_ERROR(CheckCommon(result.reader->catalog(), report_.step, work_.plan.holds_states));
    CROSSDOCK_RETURN_IF_ERROR(CountAgain(target.placement.catalog, result.reader->catalog(), dir));
    if (!target.state.scale_of.empty()) CROSSDOCK_RETURN_IF_ERROR(dialects::hf::CheckFp8List(result.reader->catalog()));
    Tell("syncing");
    report_.files = static_cast<std::int64_t>(target.AllFiles().size());
    if (!megatron) return staging.Commit({});
    return staging.Commit({{io::JoinPath(io::AbsolutePath(target.root), std::string(formats::kTracker)), fmt::format("{}", report_.step)}});
  }

  const SaveWork work_;
  RunStorage run_;
  const SaveClock::time_point start_ = SaveClock::now();
  ExportReport report_;
  std::thread thread_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable_any changed_;
  std::optional<Result<ExportReport>> result_;
};

}  // namespace

std::shared_ptr<SavingJob> MakeSavingJob(SaveWork work, std::int64_t step, std::string target) {
  return std::make_shared<RankJob>(std::move(work), step, std::move(target));
}

}  // namespace crossdock::convert
