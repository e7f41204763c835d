// SPDX-License-Identifier: Apache-2.0
#include "execute/executor.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "execute/box_runs.h"
#include "execute/chunk_sums.h"
#include "execute/decoded_chunks.h"
#include "execute/encoded_places.h"
#include "execute/journal.h"
#include "execute/memory_budget.h"
#include "execute/progress.h"
#include "execute/source_files.h"
#include "execute/target_files.h"
#include "execute/task_queue.h"
#include "execute/task_runner.h"
#include "io/staging.h"

namespace crossdock::execute {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kJournalInterval = std::chrono::seconds(5);
constexpr std::int64_t kJournalLimit = std::int64_t{1} << 30U;

const Entry& EntryOf(const Catalog& catalog, std::int32_t entry) {
  return catalog.entries[static_cast<std::size_t>(entry)];
}

/// Elements that fill no whole bytes are stored by nobody yet; the kernels do not know them.
Status CheckWholeBytes(const plan::Plan& plan, const Catalog& source, const Catalog& target) {
  const auto check = [](const Entry& entry) -> Status {
    if (BitsOf(entry.dtype) % 8 == 0) return OkStatus();
    return MakeError(ErrorCode::kUnsupported, fmt::format("{} tensors cannot be moved yet", DTypeName(entry.dtype)))
        .WithTensor(entry.name);
  };
  for (const plan::Task& task : plan.tasks) {
    for (const plan::Read& read : task.reads) CROSSDOCK_RETURN_IF_ERROR(check(EntryOf(source, read.entry)));
    for (const plan::Output& output : task.outputs) {
      CROSSDOCK_RETURN_IF_ERROR(check(EntryOf(target, output.entry)));
    }
  }
  return OkStatus();
}

std::int64_t OutputBytes(const plan::Task& task) {
  std::int64_t bytes = 0;
  for (const plan::Output& output : task.outputs) bytes += output.bytes;
  return bytes;
}

/// What decoded chunks may keep of the memory: never so much that the largest task would wait for them, as they wait for it.
std::int64_t KeptDecoded(const plan::Plan& plan, std::int64_t memory) {
  std::int64_t largest = 0;
  for (const plan::Task& task : plan.tasks) largest = std::max(largest, task.buffer_bytes);
  return std::max<std::int64_t>(memory - BufferPool::LeaseSize(largest, memory), 0) / 2;
}

/// So many workers that what they have encoded and not yet written takes no more than half of the memory.
int WorkersFor(int threads, std::int64_t encoded_task, std::int64_t memory) {
  if (encoded_task == 0) return std::max(threads, 1);
  return static_cast<int>(std::clamp<std::int64_t>(memory / 2 / encoded_task, 1, std::max(threads, 1)));
}

/// The lines of a journal that an interrupted run goes on behind where chunks are encoded: those of the longest beginning of the plan.
std::vector<DoneTask> BeginningOf(std::vector<DoneTask> done) {
  std::map<std::int64_t, DoneTask> by_task;
  for (DoneTask& one : done) by_task[one.task] = std::move(one);
  std::vector<DoneTask> out;
  for (auto& [task, one] : by_task) {
    if (task != static_cast<std::int64_t>(out.size())) break;
    out.push_back(std::move(one));
  }
  return out;
}

std::string JoinWords(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, "\t")); }

std::vector<std::string> SplitWords(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\t', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// The words of `a` that `b` has not: "`--tp 2`, `--dtype bf16`".
std::string WordsOnlyIn(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::string out;
  for (const std::string& word : a) {
    if (std::find(b.begin(), b.end(), word) == b.end()) out += fmt::format("{}`{}`", out.empty() ? "" : ", ", Printable(word, 4096));
  }
  return out;
}

Status CheckHeader(const JournalHeader& header, const std::string& path, const plan::Plan& plan, const std::vector<std::string>& request) {
  if (header.plan_hash == plan.hash) return OkStatus();
  const std::vector<std::string> then = SplitWords(header.request);
  const std::string before = WordsOnlyIn(then, request);
  const std::string now = WordsOnlyIn(request, then);
  Error error = MakeError(ErrorCode::kUsage, "the interrupted run was another conversion").WithPath(path);
  if (before.empty() && now.empty()) {
    error.message += ": its files have changed since, the source's or a template's";
  } else {
    const std::string nothing = "nothing of that";
    error.expected = before.empty() ? nothing : before;
    error.found = now.empty() ? nothing : now;
  }
  return std::move(error).WithHint("repeat the command as it was, or leave --resume out: that drops the unfinished work and starts over");
}

/// One run of a plan.
class Execution {
 public:
  Execution(const plan::Plan& plan, io::Storage& source_storage, const formats::CheckpointReader& source,
            io::Storage& target_storage, std::string staging_dir, const formats::Placement& placement,
            std::vector<formats::Frame> frames, const formats::CheckpointWriter& writer, const ExecuteOptions& options, Fp8Kernels fp8)
      : plan_(plan),
        storage_(target_storage),
        dir_(std::move(staging_dir)),
        frames_(std::move(frames)),
        options_(options),
        fp8_(fp8),
        kinds_{placement.wants_crc32, options.digests},
        done_(plan.tasks.size(), false),
        places_(plan, placement.catalog),
        workers_(WorkersFor(options.threads, places_.largest_task(), options.memory)),
        memory_(options.memory - workers_ * places_.largest_task()),
        buffers_(memory_),
        decoded_(source, buffers_, KeptDecoded(plan, memory_), target_storage, dir_,
                 [this] { return failed_.load(std::memory_order_relaxed) || options_.stop.stop_requested(); }),
        sources_(source_storage, source.catalog(), &decoded_),
        targets_(target_storage, dir_, placement.catalog),
        sums_(placement.catalog, kinds_),
        progress_(options.on_progress, plan.bytes_written),
        shared_{
            plan,     source,
            writer,   placement,
            sources_, targets_,
            places_,  sums_,    progress_,
            buffers_, [this] { return failed_.load(std::memory_order_relaxed) || options_.stop.stop_requested(); },
            fp8_, options.allow_nonfinite, options.exact_reads, overflows_, nonfinite_, options.amaxes} {}

  Result<ExecuteReport> Run();
  Result<std::vector<float>> MeasureParts(std::int64_t count);

 private:
  Status TrimEncoded();
  Status Prepare();
  Status StartAnew();
  /// True when the journal was taken over.
  Result<bool> Resume();
  bool Fits(const JournalContent& content) const;
  bool HoldsEncoded(const std::vector<DoneTask>& done) const;
  Status SealEmptyChunks();
  Status RunWorkers();
  void Work(TaskRunner& runner);
  Status RunTask(TaskRunner& runner, std::int64_t index);
  Status MeasureTask(TaskRunner& runner, std::int64_t index);
  Status Flush(const std::vector<DoneTask>& batch);
  Status FlushIfDue();
  void Fail(std::int64_t task, Error error, bool nonfinite);
  Status Outcome(TaskRunner& runner);
  Result<NonFiniteFound> CountNonFinite(TaskRunner& runner, std::int64_t of_task);

  const plan::Plan& plan_;
  io::Storage& storage_;
  const std::string dir_;
  std::vector<formats::Frame> frames_;  ///< empty once they are written
  const ExecuteOptions& options_;
  const Fp8Kernels fp8_;
  const SumKinds kinds_;
  std::vector<bool> done_;  ///< written before the workers start, read by them
  EncodedPlaces places_;
  const int workers_;
  const std::int64_t memory_;  ///< without what is encoded and not yet written
  BufferPool buffers_;
  DecodedChunks decoded_;
  SourceFiles sources_;
  TargetFiles targets_;
  ChunkSums sums_;
  ProgressMeter progress_;
  std::optional<TaskQueue> queue_;
  std::atomic<bool> failed_ = false;
  std::atomic<std::int64_t> overflows_ = 0;
  std::atomic<std::int64_t> nonfinite_ = 0;
  const SharedWork shared_;
  ExecuteReport report_;
  std::optional<Journal> journal_;

  std::mutex mutex_;  ///< guards what follows
  std::optional<std::pair<std::int64_t, Error>> error_;
  bool error_is_nonfinite_ = false;
  std::vector<DoneTask> pending_;  ///< done, not yet durable
  std::int64_t pending_bytes_ = 0;
  Clock::time_point last_flush_ = Clock::now();
  bool flushing_ = false;
  bool flush_failed_ = false;
  std::optional<std::vector<float>> measured_;  ///< set while nothing but that is done
};

Result<ExecuteReport> Execution::Run() {
  CROSSDOCK_RETURN_IF_ERROR(CheckWholeBytes(plan_, shared_.source.catalog(), shared_.placement.catalog));
  CROSSDOCK_RETURN_IF_ERROR(Prepare());
  auto worked = RunWorkers();
  if (!worked) {
    // What was done so far is worth keeping. After a failed sync nobody knows what is durable: nothing is journalled.
    if (!flush_failed_) (void)Flush(std::exchange(pending_, {}));
    return worked.error();
  }
  CROSSDOCK_RETURN_IF_ERROR(TrimEncoded());
  CROSSDOCK_RETURN_IF_ERROR(Flush(std::exchange(pending_, {})));
  progress_.Tell("");
  report_.bytes_read = sources_.bytes_read();
  report_.bytes_written = targets_.bytes_written();
  report_.peak_buffer_bytes = buffers_.peak_bytes() + workers_ * places_.largest_task();
  report_.overflows = overflows_.load();
  report_.nonfinite = nonfinite_.load();
  report_.loose = sums_.Loose();
  report_.digests = sums_.EntryDigests();
  return std::move(report_);
}

/// Places are final: files end where their last chunk does, and the caller learns where each lies.
Status Execution::TrimEncoded() {
  if (!places_.any()) return OkStatus();
  for (const FileRef& file : shared_.placement.catalog.files) report_.file_ends.push_back(file.identity.size);
  const std::vector<Entry>& entries = shared_.placement.catalog.entries;
  std::set<std::int32_t> files;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    for (std::size_t c = 0; c < entries[e].chunks.size(); ++c) {
      const Chunk& chunk = entries[e].chunks[c];
      if (chunk.encoding != ChunkEncoding::kEncoded) continue;
      files.insert(chunk.file);
      const auto entry = static_cast<std::int32_t>(e);
      const auto number = static_cast<std::int32_t>(c);
      report_.encoded.push_back({entry, number, places_.RangeOf(entry, number)});
    }
  }
  for (const std::int32_t file : files) {
    const auto index = static_cast<std::size_t>(file);
    report_.file_ends[index] = places_.ends()[index];
    CROSSDOCK_RETURN_IF_ERROR(targets_.Trim(file, report_.file_ends[index]));
  }
  return OkStatus();
}

/// The same tasks are run again afterwards, by another Execution.
Result<std::vector<float>> Execution::MeasureParts(std::int64_t count) {
  measured_.emplace(static_cast<std::size_t>(count), 0.0F);
  for (std::size_t i = 0; i < plan_.tasks.size(); ++i) {
    const auto& step = plan_.tasks[i].quantize;
    done_[i] = !step || !step->part;
    if (!done_[i]) sources_.Expect(plan_.tasks[i]);
  }
  CROSSDOCK_RETURN_IF_ERROR(RunWorkers());
  return *std::move(measured_);
}

Status Execution::MeasureTask(TaskRunner& runner, std::int64_t index) {
  const Fp8Kernels::Blocks blocks = Fp8Kernels::BlocksOf(*plan_.tasks[static_cast<std::size_t>(index)].quantize);
  std::vector<float> mine(static_cast<std::size_t>(blocks.count), 0.0F);
  CROSSDOCK_RETURN_IF_ERROR(runner.Measure(index, mine));
  CROSSDOCK_RETURN_IF_ERROR(sources_.Release(plan_.tasks[static_cast<std::size_t>(index)]));
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    float& amax = (*measured_)[static_cast<std::size_t>(blocks.first) + i];
    amax = quantize::Larger(amax, mine[i]);
  }
  return OkStatus();
}

Status Execution::Prepare() {
  if (!options_.into_existing) {
    CROSSDOCK_ASSIGN_OR_RETURN(const bool resumed, Resume());
    if (!resumed) CROSSDOCK_RETURN_IF_ERROR(StartAnew());
  }
  for (std::size_t i = 0; i < plan_.tasks.size(); ++i) {
    if (done_[i]) continue;
    sources_.Expect(plan_.tasks[i]);
    targets_.Expect(plan_.tasks[i]);
  }
  return SealEmptyChunks();
}

Status Execution::StartAnew() {
  const std::string path = io::JournalPath(dir_);
  // Before its files are made anew: else a crash in between would leave a journal that speaks of empty files.
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage_, path));
  CROSSDOCK_RETURN_IF_ERROR(storage_.SyncDir(dir_));
  CROSSDOCK_RETURN_IF_ERROR(targets_.Create());
  CROSSDOCK_RETURN_IF_ERROR(targets_.WriteFrames(std::exchange(frames_, {})));
  const JournalHeader header{plan_.hash, static_cast<std::int64_t>(plan_.tasks.size()), kinds_, JoinWords(options_.request)};
  CROSSDOCK_ASSIGN_OR_RETURN(journal_, Journal::Create(storage_, path, header));
  return OkStatus();
}

Result<bool> Execution::Resume() {
  const std::string path = io::JournalPath(dir_);
  if (!options_.resume || !io::Exists(storage_, path)) return false;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage_, path, kJournalLimit));
  auto content = ParseJournal(text);
  if (content) CROSSDOCK_RETURN_IF_ERROR(CheckHeader(content->header, path, plan_, options_.request));
  if (content && places_.any()) content->done = BeginningOf(std::move(content->done));
  if (!content || !Fits(*content)) {
    report_.notices.push_back("the interrupted run's journal cannot be used: the conversion starts over");
    return false;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(journal_, Journal::Continue(storage_, path, *content));
  // First the frames, then the seals of what is done: a seal may lie within a frame.
  CROSSDOCK_RETURN_IF_ERROR(targets_.WriteFrames(std::exchange(frames_, {})));
  for (const DoneTask& done : content->done) {
    const auto index = static_cast<std::size_t>(done.task);
    if (done_[index]) continue;
    done_[index] = true;
    if (places_.any()) {
      CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const auto places, places_.Place(done.task, done.encoded, shared_.stopped));
    }
    CROSSDOCK_RETURN_IF_ERROR(JoinSums(shared_, done));
    progress_.Add(OutputBytes(plan_.tasks[index]), "");
    ++report_.tasks_resumed;
  }
  return true;
}

bool Execution::Fits(const JournalContent& content) const {
  if (content.header.kinds != kinds_ || content.header.tasks != static_cast<std::int64_t>(plan_.tasks.size())) {
    return false;
  }
  if (!targets_.AllPresent()) return false;
  const bool whole = std::all_of(content.done.begin(), content.done.end(), [&](const DoneTask& done) {
    return done.sums.size() == CountPieces(shared_, done.task) && done.encoded.size() == (places_.any() ? places_.CountOf(done.task) : 0);
  });
  return whole && HoldsEncoded(content.done);
}

/// What the journal says is encoded lies in the files.
bool Execution::HoldsEncoded(const std::vector<DoneTask>& done) const {
  std::map<std::int32_t, std::int64_t> ends;
  for (const DoneTask& one : done) {
    std::size_t next = 0;
    for (const plan::Output& output : plan_.tasks[static_cast<std::size_t>(one.task)].outputs) {
      if (!places_.any() || !places_.IsEncoded(output)) continue;
      const Entry& entry = EntryOf(shared_.placement.catalog, output.entry);
      ends[entry.chunks[static_cast<std::size_t>(output.chunk)].file] += one.encoded[next++];
    }
  }
  return std::all_of(ends.begin(), ends.end(), [this](const auto& end) { return targets_.Reaches(end.first, end.second); });
}

Status Execution::SealEmptyChunks() {
  if (!kinds_.crc32) return OkStatus();
  const auto& entries = shared_.placement.catalog.entries;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    for (std::size_t c = 0; c < entries[e].chunks.size(); ++c) {
      if (entries[e].chunks[c].bytes.length != 0) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(const auto frames,
                                 shared_.writer.Seal(shared_.placement.catalog, static_cast<std::int32_t>(e),
                                                     static_cast<std::int32_t>(c), 0));
      CROSSDOCK_RETURN_IF_ERROR(targets_.WriteFrames(frames));
    }
  }
  return OkStatus();
}

Status Execution::RunWorkers() {
  queue_.emplace(plan_, shared_.placement.catalog, done_, places_.any());
  std::vector<TaskRunner> runners;
  const auto useful = static_cast<int>(std::min<std::size_t>(plan_.tasks.size(), 1024));
  for (int i = 0; i < std::clamp(workers_, 1, std::max(useful, 1)); ++i) {
    CROSSDOCK_ASSIGN_OR_RETURN(TaskRunner runner, TaskRunner::Create(shared_));
    runners.push_back(std::move(runner));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < runners.size(); ++i) threads.emplace_back([this, &runners, i] { Work(runners[i]); });
    Work(runners[0]);
  }
  return Outcome(runners[0]);
}

void Execution::Work(TaskRunner& runner) {
  while (!shared_.stopped()) {
    const std::optional<std::int64_t> index = queue_->Take();
    if (!index) return;
    auto ran = RunTask(runner, *index);
    queue_->Finish(*index);
    if (!ran) Fail(*index, std::move(ran).error(), runner.refused_nonfinite());
  }
}

Status Execution::RunTask(TaskRunner& runner, std::int64_t index) {
  if (measured_) return MeasureTask(runner, index);
  const plan::Task& task = plan_.tasks[static_cast<std::size_t>(index)];
  CROSSDOCK_ASSIGN_OR_RETURN(DoneTask done, runner.Run(index));
  CROSSDOCK_RETURN_IF_ERROR(JoinSums(shared_, done));
  CROSSDOCK_RETURN_IF_ERROR(sources_.Release(task));
  targets_.Release(task);
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(done));
    pending_bytes_ += OutputBytes(task);
  }
  return FlushIfDue();
}

Status Execution::FlushIfDue() {
  std::vector<DoneTask> batch;
  {
    const std::lock_guard lock(mutex_);
    const bool due = pending_bytes_ >= options_.journal_bytes || Clock::now() - last_flush_ >= kJournalInterval;
    if (!due || flushing_ || flush_failed_) return OkStatus();
    flushing_ = true;
    batch.swap(pending_);
    pending_bytes_ = 0;
  }
  auto flushed = Flush(batch);
  const std::lock_guard lock(mutex_);
  flushing_ = false;
  flush_failed_ = !flushed;
  last_flush_ = Clock::now();
  return flushed;
}

/// One at a time: FlushIfDue sees to it while there are workers.
Status Execution::Flush(const std::vector<DoneTask>& batch) {
  CROSSDOCK_RETURN_IF_ERROR(targets_.SyncAll());
  return journal_ ? journal_->Append(batch) : OkStatus();
}

void Execution::Fail(std::int64_t task, Error error, bool nonfinite) {
  // Those that stop because another failed, or because the caller wants it, have nothing to tell.
  if (error.code == ErrorCode::kCancelled) return;
  const std::lock_guard lock(mutex_);
  if (!error_ || task < error_->first) {
    error_ = {task, std::move(error)};
    error_is_nonfinite_ = nonfinite;
  }
  failed_ = true;
}

/// Over all tasks of the tensor that a task makes.
Result<NonFiniteFound> Execution::CountNonFinite(TaskRunner& runner, std::int64_t of_task) {
  const auto entry_of = [](const plan::Task& task) {  // -1: of a task of scales alone
    return task.quantize->q_output < 0 ? -1 : task.outputs[static_cast<std::size_t>(task.quantize->q_output)].entry;
  };
  const std::int32_t entry = entry_of(plan_.tasks[static_cast<std::size_t>(of_task)]);
  NonFiniteFound all;
  for (std::size_t i = 0; i < plan_.tasks.size(); ++i) {
    const plan::Task& task = plan_.tasks[i];
    if (!task.quantize || entry_of(task) != entry) continue;
    sources_.Expect(task);
    CROSSDOCK_ASSIGN_OR_RETURN(const NonFiniteFound found, runner.CountNonFinite(static_cast<std::int64_t>(i)));
    CROSSDOCK_RETURN_IF_ERROR(sources_.Release(task));
    if (found.count == 0) continue;
    all.first = all.count == 0 ? found.first : std::min(all.first, found.first);
    all.count += found.count;
  }
  return all;
}

/// The workers are gone. Where one of them refused a value that is not finite, the whole tensor is looked through: whoever mends it
/// wants to know how much of it is broken.
Status Execution::Outcome(TaskRunner& runner) {
  if (error_ && error_is_nonfinite_) {
    failed_ = false;  // for this one look
    const Result<NonFiniteFound> all = CountNonFinite(runner, error_->first);
    failed_ = true;
    if (all) return NonFiniteError(shared_, plan_.tasks[static_cast<std::size_t>(error_->first)], *all);
  }
  if (error_) return std::move(error_->second);
  if (!options_.stop.stop_requested()) return OkStatus();
  return MakeError(ErrorCode::kCancelled, "interrupted");
}

}  // namespace

Status CheckSameRun(io::Storage& storage, const std::string& staging_dir, const plan::Plan& plan, const std::vector<std::string>& request) {
  const std::string path = io::JournalPath(staging_dir);
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, path, kJournalLimit));
  const auto content = ParseJournal(text);
  return content ? CheckHeader(content->header, path, plan, request) : OkStatus();
}

Status CreateFiles(io::Storage& storage, const std::string& staging_dir, const formats::Placement& placement) {
  TargetFiles files(storage, staging_dir, placement.catalog);
  CROSSDOCK_RETURN_IF_ERROR(files.Create());
  CROSSDOCK_RETURN_IF_ERROR(files.WriteFrames(placement.frames));
  return files.SyncAll();
}

Status SealLoose(io::Storage& storage, const std::string& staging_dir, const formats::Placement& placement,
                 const formats::CheckpointWriter& writer, std::vector<LoosePiece> pieces) {
  const Catalog& catalog = placement.catalog;
  std::ranges::sort(pieces, {}, [](const LoosePiece& p) { return std::tuple(p.entry, p.chunk, p.offset); });
  TargetFiles files(storage, staging_dir, catalog);
  for (std::size_t at = 0; at < pieces.size();) {
    const LoosePiece& first = pieces[at];
    const bool known = first.entry >= 0 && static_cast<std::size_t>(first.entry) < catalog.entries.size() && first.chunk >= 0 &&
                       static_cast<std::size_t>(first.chunk) < EntryOf(catalog, first.entry).chunks.size();
    std::int64_t end = 0;
    std::uint32_t crc = 0;
    for (; at < pieces.size() && pieces[at].entry == first.entry && pieces[at].chunk == first.chunk && pieces[at].offset == end; ++at) {
      crc = end == 0 ? pieces[at].crc32 : Crc32Combine(crc, pieces[at].crc32, pieces[at].length);
      end += pieces[at].length;
    }
    const std::int64_t size = known ? EntryOf(catalog, first.entry).chunks[static_cast<std::size_t>(first.chunk)].bytes.length : -1;
    if (end != size || end == 0) {
      return MakeError(ErrorCode::kIo, "what the processes wrote does not make up a part of a tensor").WithPath(staging_dir)
          .WithTensor(known ? EntryOf(catalog, first.entry).name : "").WithExpected(fmt::format("{} bytes", size)).WithFound(fmt::format("{} in a row", end));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<formats::Frame> frames, writer.Seal(catalog, first.entry, first.chunk, crc));
    CROSSDOCK_RETURN_IF_ERROR(files.WriteFrames(frames));
  }
  return files.SyncAll();
}

Result<std::vector<float>> Measure(const plan::Plan& plan, io::Storage& source_storage, const formats::CheckpointReader& source,
                                   const formats::Placement& placement, const formats::CheckpointWriter& writer, std::int64_t count,
                                   const ExecuteOptions& options) {
  Execution execution(plan, source_storage, source, source_storage, "", placement, {}, writer, options, Fp8Kernels());
  return execution.MeasureParts(count);
}

void TakePlaces(const ExecuteReport& report, Catalog* placed) {
  for (const EncodedChunk& one : report.encoded) {
    placed->entries[static_cast<std::size_t>(one.entry)].chunks[static_cast<std::size_t>(one.chunk)].bytes = one.bytes;
  }
  for (std::size_t file = 0; file < report.file_ends.size(); ++file) placed->files[file].identity.size = report.file_ends[file];
}

Result<ExecuteReport> Execute(const plan::Plan& plan, io::Storage& source_storage,
                              const formats::CheckpointReader& source, io::Storage& target_storage,
                              const std::string& staging_dir, const formats::Placement& placement,
                              std::vector<formats::Frame> frames, const formats::CheckpointWriter& writer,
                              const ExecuteOptions& options) {
  Fp8Kernels fp8;
  if (options.cuda) {
    CROSSDOCK_ASSIGN_OR_RETURN(quantize::CudaDevice device, quantize::CudaDevice::Open());
    fp8 = Fp8Kernels(device);
  }
  Execution execution(plan, source_storage, source, target_storage, staging_dir, placement, std::move(frames), writer,
                      options, fp8);
  return execution.Run();
}

}  // namespace crossdock::execute
