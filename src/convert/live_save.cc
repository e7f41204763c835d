// SPDX-License-Identifier: Apache-2.0
// The steps of a save, each ended by Agree (agree.h):
//   tensors    every rank has matched its tensors to the plan; types that differ from the reference's are told, and planned with
//   staging    rank 0 has made the directory and all files, and left a word there
//   measuring  every rank sees that word, and has measured the blocks that it shares with others
//   writing    every rank has written and synced its share
//   commit     rank 0 has added what is no tensor, opened the result, and put it in place
// Up to the last, an error on any rank ends the save on all of them, and rank 0 removes what was made.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/checked_math.h"
#include "convert/agree.h"
#include "convert/export_plan.h"
#include "convert/export_target.h"
#include "convert/guarded.h"
#include "convert/job.h"
#include "convert/random_word.h"
#include "convert/tensor_complaints.h"
#include "crossdock/live_save.h"
#include "dialects/hf/fp8_config.h"
#include "execute/executor.h"
#include "execute/memory_budget.h"
#include "formats/live/buffer_storage.h"
#include "io/overlay_storage.h"
#include "io/staging.h"
#include "quantize/block.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): the room's own names
using SaveClock = std::chrono::steady_clock;

constexpr const char* kSaveHint = "compare the layout, this rank's place in it and the naming of its modules with the model's";
constexpr auto kSeenWithin = std::chrono::seconds(30);  ///< network file systems tell late what others made
constexpr int kNiceness = 10;
constexpr const char* kWordFile = ".crossdock-save";
constexpr double kLongestWait = 10 * 365.25 * 86400;        ///< seconds; more is not told apart, and clocks would overflow

/// The run's buffers, and beside them what the reference's own files give.
class RunStorage final : public io::OverlayStorage {
 public:
  explicit RunStorage(io::Storage& files) : io::OverlayStorage(files), files_(files), buffers_(kLiveRoot) {}
  [[nodiscard]] formats::live::BufferStorage& buffers() { return buffers_; }
  [[nodiscard]] Result<std::unique_ptr<io::ReadFile>> OpenRead(const std::string& path) override {
    if (buffers_.Stat(path)) return buffers_.OpenRead(path);
    return files_.OpenRead(io::AbsolutePath(path));
  }

 private:
  io::Storage& files_;
  formats::live::BufferStorage buffers_;
};

/// Memory for snapshots, kept from one to the next: fresh pages cost more than what is copied into them.
class SnapshotMemory {
 public:
  /// Room for so many bytes; what was there is gone.
  Result<std::byte*> Take(std::int64_t bytes) {
    if (bytes > buffer_.size()) {
      buffer_ = {};
      CROSSDOCK_ASSIGN_OR_RETURN(buffer_, execute::Buffer::Allocate(bytes));
    }
    return buffer_.data();
  }

 private:
  execute::Buffer buffer_;
};

/// What a job works with; the exporter outlives its job.
struct SaveWork {
  Comm& comm;
  io::Storage& storage;
  const ExportOptions& options;
  Hooks hooks;
  ExportPlan& plan;
};

class RankJob final : public ExportJob {
 public:
  RankJob(SaveWork work, std::int64_t step, std::string target) : work_(work), run_(work.storage) {
    report_.step = step;
    report_.path = std::move(target);
  }
  ~RankJob() override {
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] RunStorage& run() { return run_; }
  void Copied(std::int64_t bytes) { report_.copied_bytes = bytes; }
  void RunHere(const Status& before) {
    Finish(Guarded([&] { return Outcome(before); }));
  }
  /// On a thread that gives way to the loop, as do those that it starts.
  void RunBeside(const Status& before) {
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
    for (const std::string& bytes : written) report_.bytes += std::atoll(bytes.c_str());
    return AgreeOn(work_.comm, "putting the result in place", leads ? Guarded([&] { return Commit(**staging); }) : OkStatus());
  }

  void Tell(const char* phase) const {
    if (work_.hooks.on_progress) work_.hooks.on_progress({phase, 0, 0, ""});
  }

  /// A word and the directory.
  Result<std::string> Begin(std::unique_ptr<io::Staging>* staging) {
    Tell("making the staging directory");
    CROSSDOCK_RETURN_IF_ERROR(CheckReplaces(work_.storage, report_.path));
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
    return fmt::format("{}", done.bytes_written);
  }

  Status Commit(io::Staging& staging) {
    Tell("writing metadata");
    Target& target = work_.plan.target;
    const std::string& dir = staging.dir();
    CROSSDOCK_RETURN_IF_ERROR(work_.storage.RemoveFile(io::JoinPath(dir, kWordFile)));
    CROSSDOCK_RETURN_IF_ERROR(WriteSideFiles(work_.storage, target, work_.storage, dir));
    CROSSDOCK_RETURN_IF_ERROR(target.writer->WriteMetadata(target.placement.catalog, work_.storage, dir));
    CROSSDOCK_ASSIGN_OR_RETURN(const Source result, OpenResult(work_.storage, dir, target.kind, target));
    CROSSDOCK_RETURN_IF_ERROR(CountAgain(target.placement.catalog, result.reader->catalog(), dir));
    if (!target.state.scale_of.empty()) CROSSDOCK_RETURN_IF_ERROR(dialects::hf::CheckFp8List(result.reader->catalog()));
    Tell("syncing");
    report_.files = static_cast<std::int64_t>(target.AllFiles().size());
    return staging.Commit({});
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

class RankExporter final : public Exporter {
 public:
  RankExporter(ExportOptions options, std::shared_ptr<Comm> comm)
      : options_(std::move(options)), comm_(std::move(comm)), storage_(io::MakeLocalStorage()) {}
  ~RankExporter() override { EndJob(); }

  Status Validate() override {
    EndJob();
    CROSSDOCK_RETURN_IF_ERROR(PlanAfresh());
    const Result<std::string> path = ExportPath(options_.dst, options_.overwrite, 0);
    CROSSDOCK_RETURN_IF_ERROR(AgreeOnSame(*comm_, "looking at the target", "the target", path));
    CROSSDOCK_RETURN_IF_ERROR(AgreeOn(*comm_, "reserving memory for a snapshot", Guarded([&] { return Reserve(); })));
    return CheckTogether(*path);
  }

  const std::vector<LiveTensor>& tensors() const override { return tensors_; }

  Status Refuse(std::int64_t step, const Error& why) override {
    EndJob();
    CROSSDOCK_RETURN_IF_ERROR(HavePlan());
    return TellTypes(ExportPath(options_.dst, options_.overwrite, step), why);
  }

  Result<std::shared_ptr<ExportJob>> Save(std::int64_t step, std::span<const LiveBuffer> tensors, const Hooks& hooks) override {
    EndJob();
    CROSSDOCK_RETURN_IF_ERROR(HavePlan());
    const Result<std::string> target = ExportPath(options_.dst, options_.overwrite, step);
    std::map<std::int32_t, const LiveBuffer*> given;
    CROSSDOCK_RETURN_IF_ERROR(TellTypes(target, Guarded([&] { return Match(tensors, &given); })));
    auto job = std::make_shared<RankJob>(SaveWork{*comm_, *storage_, options_, hooks, *plan_}, step, *target);
    const Status ready = Guarded([&] { return HandOver(given, job.get()); });
    job_ = job;
    if (options_.snapshot) {
      job->RunBeside(ready);
      return std::shared_ptr<ExportJob>(job);
    }
    job->RunHere(ready);
    CROSSDOCK_RETURN_IF_ERROR(job->Wait(-1, {}));
    return std::shared_ptr<ExportJob>(job);
  }

  Status Flush(double seconds, std::stop_token stop) override {
    if (job_ == nullptr) return OkStatus();
    CROSSDOCK_RETURN_IF_ERROR(job_->Wait(seconds, std::move(stop)));
    return OkStatus();
  }

 private:
  /// A job's error is told by that job.
  void EndJob() {
    if (job_ != nullptr) (void)job_->Wait(-1, {});
    job_.reset();
  }

  /// Collective. A step that failed on one rank alone may have left a plan on some: then all forget theirs.
  Status HavePlan() {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> have, Agree(*comm_, "beginning", std::string(plan_ != nullptr ? "1" : "0")));
    const bool all = std::ranges::all_of(have, [](const std::string& one) { return one == "1"; });
    return all ? OkStatus() : PlanAfresh();
  }

  /// Collective: with the reference's types.
  Status PlanAfresh() {
    types_.clear();
    return Plan();
  }

  /// Collective.
  Status Plan() {
    plan_.reset();
    CROSSDOCK_ASSIGN_OR_RETURN(directories_, Agree(*comm_, "meeting", ExportDirectory(options_)));
    Result<std::unique_ptr<ExportPlan>> made = Guarded([&] { return MakeExportPlan(*storage_, options_, directories_, comm_->rank(), types_); });
    const Result<std::string> hash = made ? Result<std::string>((*made)->share.plan.hash) : Result<std::string>(made.error());
    CROSSDOCK_RETURN_IF_ERROR(AgreeOnSame(*comm_, "planning", "the plan", hash));
    plan_ = *std::move(made);
    tensors_.clear();
    const Catalog& catalog = plan_->source.reader->catalog();
    for (const auto& [name, index] : plan_->mine) {
      const Entry& entry = catalog.entries[static_cast<std::size_t>(index)];
      const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
      tensors_.push_back({name, std::string(DTypeName(entry.dtype)), {entry.shape.begin(), entry.shape.end()}, bytes ? *bytes : 0});
    }
#ifdef __GLIBC__
    malloc_trim(0);  // planning leaves holes all over the heap
#endif
    return OkStatus();
  }

  /// Room and one directory for all.
  Status CheckTogether(const std::string& path) {
    const std::string parent = io::ParentPath(io::AbsolutePath(path));
    const std::string word = RandomWord();
    const std::string probe = io::JoinPath(parent, ".crossdock-probe-" + word);
    const auto begin = [&]() -> Result<std::string> {
      CROSSDOCK_RETURN_IF_ERROR(CheckReplaces(*storage_, path));
      std::int64_t needed = 0;
      for (const FileRef& file : plan_->target.AllFiles()) needed += file.identity.size;
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t free_bytes, FreeBytesAt(*storage_, path));
      if (needed > free_bytes) {
        return MakeError(ErrorCode::kNoSpace, "there is not enough space for the target").WithPath(path)
            .WithExpected(fmt::format("{} bytes", needed)).WithFound(fmt::format("{} bytes free", free_bytes));
      }
      if (!io::Exists(*storage_, parent)) CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(*storage_, parent));
      CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(*storage_, probe, word));
      return probe;
    };
    const bool leads = comm_->rank() == 0;
    const Result<std::vector<std::string>> made = Agree(*comm_, "looking at the target", leads ? Guarded(begin) : Result<std::string>(""));
    Status seen = OkStatus();
    if (made) {
      const auto end = SaveClock::now() + kSeenWithin;
      bool there = false;
      while (!(there = io::Exists(*storage_, (*made)[0])) && SaveClock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (!there) {
        seen = MakeError(ErrorCode::kUsage, "this rank does not see the directory of the target that rank 0 sees").WithPath((*made)[0])
                   .WithHint("all ranks must write to one file system under one path");
      }
      seen = AgreeOn(*comm_, "looking at the target", seen);
    }
    if (leads) (void)io::RemoveFileIfPresent(*storage_, probe);
    if (!made) return made.error();
    return seen;
  }

  /// Which types differ from the plan's, by entries. kUsage when the tensors are not this rank's.
  Result<ExportTypes> Match(std::span<const LiveBuffer> tensors, std::map<std::int32_t, const LiveBuffer*>* given) const {
    const Catalog& catalog = plan_->source.reader->catalog();
    TensorComplaints complaints;
    ExportTypes other;
    given->clear();
    for (const LiveBuffer& tensor : tensors) {
      if (tensor.name.ends_with("_extra_state")) continue;
      const auto at = plan_->mine.find(tensor.name);
      if (at == plan_->mine.end()) {
        complaints.Add("not of this rank", tensor.name);
        continue;
      }
      const Entry& entry = catalog.entries[static_cast<std::size_t>(at->second)];
      const std::optional<DType> dtype = DTypeFromName(tensor.dtype);
      if (!given->emplace(at->second, &tensor).second) {
        complaints.Add("given twice", tensor.name);
      } else if (!std::ranges::equal(tensor.shape, entry.shape)) {
        complaints.Add("of another shape", tensor.name, fmt::format(" [{}] where [{}] is expected", fmt::join(tensor.shape, ", "), fmt::join(entry.shape, ", ")));
      } else if (!dtype || !IsFloating(*dtype) || BitsOf(*dtype) < 16) {
        complaints.Add("of an unknown type", tensor.name, fmt::format(" `{}`", Printable(tensor.dtype)));
      } else if (const auto bytes = ByteSize(*dtype, entry.shape); !bytes || *bytes != tensor.bytes || (tensor.data == nullptr && tensor.bytes > 0)) {
        complaints.Add("of another size", tensor.name, fmt::format(" {} bytes", tensor.bytes));
      } else if (*dtype != entry.dtype) {
        other[entry.name] = *dtype;
      }
    }
    for (const auto& [name, index] : plan_->mine) {
      if (plan_->wanted.contains(index) && !given->contains(index)) complaints.Add("missing", name);
    }
    CROSSDOCK_RETURN_IF_ERROR(complaints.Outcome(kSaveHint));
    return other;
  }

  /// Collective: all ranks mean one target and learn each other's types. Where those are new, all plan anew.
  /// kUsage where ranks that hold the same differ: what is written would depend on which of them is asked.
  Status TellTypes(const Result<std::string>& target, const Result<ExportTypes>& mine) {
    Result<std::string> message = !target ? Result<std::string>(target.error()) : !mine ? Result<std::string>(mine.error()) : Result<std::string>(*target + "\n");
    if (message && mine) {
      for (const auto& [name, dtype] : *mine) *message += fmt::format("{} {}\n", DTypeName(dtype), name);
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> all, Agree(*comm_, "taking the tensors", message));
    std::vector<ExportTypes> told(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const std::string& text = all[rank];
      std::size_t at = text.find('\n');
      const std::string theirs = text.substr(0, at);
      if (theirs != all[0].substr(0, all[0].find('\n'))) {
        return MakeError(ErrorCode::kUsage, fmt::format("ranks 0 and {} save to different targets", rank)).WithExpected(Printable(all[0].substr(0, all[0].find('\n')))).WithFound(Printable(theirs));
      }
      while (at + 1 < text.size()) {
        const std::size_t space = text.find(' ', at);
        const std::size_t end = text.find('\n', at + 1);
        const std::optional<DType> dtype = DTypeFromName(text.substr(at + 1, space - at - 1));
        if (dtype) told[rank][text.substr(space + 1, end - space - 1)] = *dtype;
        at = end;
      }
    }
    ExportTypes news;
    std::map<std::string, std::size_t> first;  // rank of each directory
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const std::size_t twin = first.emplace(directories_[rank], rank).first->second;
      if (told[rank] != told[twin]) return TwinsDiffer(twin, told[twin], rank, told[rank]);
      news.insert(told[rank].begin(), told[rank].end());
    }
    if (news.empty()) return OkStatus();
    for (const auto& [name, dtype] : news) types_[name] = dtype;
    return Plan();
  }

  static Error TwinsDiffer(std::size_t a, const ExportTypes& of_a, std::size_t b, const ExportTypes& of_b) {
    const auto type = [](const ExportTypes& of, const std::string& name) -> std::string {
      const auto at = of.find(name);
      return at == of.end() ? "the type of before" : fmt::format("`{}`", DTypeName(at->second));
    };
    std::string tensor;
    for (const ExportTypes* of : {&of_a, &of_b}) {
      for (const auto& [name, dtype] : *of) {
        if (tensor.empty() && type(of_a, name) != type(of_b, name)) tensor = name;
      }
    }
    return MakeError(ErrorCode::kUsage, fmt::format("ranks {} and {} hold the same tensor with different types", a, b)).WithTensor(tensor)
        .WithExpected(fmt::format("{} as on rank {}", type(of_a, tensor), a)).WithFound(type(of_b, tensor))
        .WithHint("replicas must hold equal types; check each rank's place in the layout");
  }

  [[nodiscard]] std::int64_t SnapshotBytes() const {
    const Catalog& catalog = plan_->source.reader->catalog();
    std::int64_t bytes = 0;
    for (const std::int32_t index : plan_->fed) bytes += RoundUp(catalog.entries[static_cast<std::size_t>(index)].chunks.front().bytes.length, 64);
    return bytes;
  }

  /// So that the first snapshot takes no longer than the others.
  Status Reserve() {
    if (!options_.snapshot) return OkStatus();
    CROSSDOCK_ASSIGN_OR_RETURN(std::byte * memory, snapshot_.Take(SnapshotBytes()));
    std::memset(memory, 0, static_cast<std::size_t>(SnapshotBytes()));
    return OkStatus();
  }

  /// Gives the job the memory that it reads.
  Status HandOver(const std::map<std::int32_t, const LiveBuffer*>& given, RankJob* job) {
    const Catalog& catalog = plan_->source.reader->catalog();
    const std::int64_t bytes = SnapshotBytes();
    std::byte* to = nullptr;
    if (options_.snapshot) {
      CROSSDOCK_ASSIGN_OR_RETURN(to, snapshot_.Take(bytes));
    }
    for (const std::int32_t index : plan_->fed) {
      const Entry& entry = catalog.entries[static_cast<std::size_t>(index)];
      const auto found = given.find(index);
      if (found == given.end() || DTypeFromName(found->second->dtype) != entry.dtype || found->second->bytes != entry.chunks.front().bytes.length) {
        return MakeError(ErrorCode::kUsage, "a tensor is not what was planned for").WithTensor(entry.name)
            .WithExpected(fmt::format("{} bytes of `{}`", entry.chunks.front().bytes.length, DTypeName(entry.dtype)))
            .WithFound(found == given.end() ? "nothing" : fmt::format("{} bytes of `{}`", found->second->bytes, Printable(found->second->dtype)));
      }
      const LiveBuffer& tensor = *found->second;
      const auto* from = static_cast<const std::byte*>(tensor.data);
      const std::span<const std::byte> memory(to != nullptr ? to : from, static_cast<std::size_t>(tensor.bytes));
      if (to != nullptr) {
        std::memcpy(to, from, memory.size());
        to += RoundUp(tensor.bytes, 64);
      }
      CROSSDOCK_RETURN_IF_ERROR(job->run().buffers().AddReadOnly(entry.name, memory));
    }
    job->Copied(options_.snapshot ? bytes : 0);
    return OkStatus();
  }

  const ExportOptions options_;
  const std::shared_ptr<Comm> comm_;
  const std::unique_ptr<io::Storage> storage_;
  std::vector<std::string> directories_;  ///< of all ranks, when they met for the plan
  ExportTypes types_;
  std::unique_ptr<ExportPlan> plan_;      ///< of all ranks or of none
  std::vector<LiveTensor> tensors_;
  SnapshotMemory snapshot_;
  std::shared_ptr<RankJob> job_;          ///< the last one
};

Status CheckOptions(const ExportOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(ExportPath(options.dst, options.overwrite, 0));
  if (options.mtp != "keep" && options.mtp != "none" && options.mtp != "drop" && options.mtp != "template") {
    return MakeError(ErrorCode::kUsage, "layers of multi-token prediction are kept, none, dropped or the template's").WithExpected("`keep`, `none`, `drop` or `template`").WithFound(Printable(options.mtp));
  }
  if (options.fp8.device && *options.fp8.device != "cpu") {
    return MakeError(ErrorCode::kUsage, "a save quantizes on the CPU").WithFound(fmt::format("device `{}`", Printable(*options.fp8.device))).WithHint("leave the device out");
  }
  if (options.dtype && *options.dtype != "bf16" && *options.dtype != "fp16" && *options.dtype != "fp32") {
    return MakeError(ErrorCode::kUsage, "there is no such type to save as").WithExpected("`bf16`, `fp16` or `fp32`").WithFound(Printable(*options.dtype));
  }
  if (options.reference.empty()) return MakeError(ErrorCode::kUsage, "a save needs a reference: the model's Hugging Face directory");
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Exporter>> Exporter::Make(const ExportOptions& options, std::shared_ptr<Comm> comm) {
  CROSSDOCK_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<Exporter>(std::make_unique<RankExporter>(options, std::move(comm)));
}

}  // namespace crossdock
