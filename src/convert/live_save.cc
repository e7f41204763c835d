// SPDX-License-Identifier: Apache-2.0
// What comes before a job (export_job.h): planning, and the tensors, which every rank has matched to the plan; types that differ from the
// reference's are told (export_types.h), and planned with.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/checked_math.h"
#include "convert/agree.h"
#include "convert/export_job.h"
#include "convert/export_plan.h"
#include "convert/export_target.h"
#include "convert/export_types.h"
#include "convert/guarded.h"
#include "convert/job.h"
#include "convert/live_names.h"
#include "convert/random_word.h"
#include "convert/tensor_complaints.h"
#include "crossdock/live_save.h"
#include "execute/memory_budget.h"
#include "formats/live/live.h"
#include "kernels/copy_streaming.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): the room's own names
using SaveClock = std::chrono::steady_clock;

constexpr const char* kSaveHint = "compare the layout, this rank's place in it and the naming of its modules with the model's";

/// Memory for snapshots, kept from one to the next: fresh pages cost more than what is copied into them.
class SnapshotMemory {
 public:
  /// Room for so many bytes; what was there is gone.
  Result<std::byte*> Take(std::int64_t bytes) {
    if (bytes > buffer_.size()) {
      buffer_ = {};
      CROSSDOCK_ASSIGN_OR_RETURN(buffer_, execute::Buffer::Allocate(bytes));
#ifdef MADV_HUGEPAGE
      (void)::madvise(buffer_.data(), static_cast<std::size_t>(buffer_.size()), MADV_HUGEPAGE);  // faster to walk; not needed
#endif
    }
    return buffer_.data();
  }

 private:
  execute::Buffer buffer_;
};

class RankExporter final : public Exporter {
 public:
  RankExporter(ExportOptions options, std::shared_ptr<Comm> comm)
      : options_(std::move(options)), comm_(std::move(comm)), storage_(io::MakeLocalStorage()) {}
  ~RankExporter() override {
    if (job_ != nullptr) (void)job_->Wait(-1, {});
  }

  void Heed(std::stop_token stop) override { stop_ = std::move(stop); }

  Status Validate() override {
    CROSSDOCK_RETURN_IF_ERROR(EndJob());
    CROSSDOCK_RETURN_IF_ERROR(PlanAfresh());
    const Result<std::string> path = SavePath(options_, 0);
    CROSSDOCK_RETURN_IF_ERROR(AgreeOnSame(*comm_, "looking at the target", "the target", path));
    CROSSDOCK_RETURN_IF_ERROR(AgreeOn(*comm_, "reserving memory for a snapshot", Guarded([&] { return Reserve(); })));
    return CheckTogether(*path);
  }

  const std::vector<LiveTensor>& tensors() const override { return tensors_; }

  Status Refuse(std::int64_t step, const Error& why) override {
    CROSSDOCK_RETURN_IF_ERROR(EndJob());
    CROSSDOCK_RETURN_IF_ERROR(HavePlan());
    return TellTypes(SavePath(options_, step), why);
  }

  Result<std::shared_ptr<ExportJob>> Save(std::int64_t step, std::span<const LiveBuffer> tensors, const Hooks& hooks, const std::string& common) override {
    CROSSDOCK_RETURN_IF_ERROR(EndJob());
    CROSSDOCK_RETURN_IF_ERROR(HavePlan());
    const Result<std::string> target = SavePath(options_, step);
    std::map<LivePart, const LiveBuffer*> given;
    CROSSDOCK_RETURN_IF_ERROR(TellTypes(target, Guarded([&] { return Match(tensors, common, &given); })));
    const std::shared_ptr<SavingJob> job = MakeSavingJob(SaveWork{*comm_, *storage_, options_, hooks, *plan_, common}, step, *target);
    const Status ready = Guarded([&] { return HandOver(given, job.get()); });
    job_ = job;
    if (options_.snapshot) {
      comm_->Heed({});
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
  Status EndJob() {
    if (job_ != nullptr) {
      const Result<ExportReport> ended = job_->Wait(-1, stop_);
      if (!job_->Done()) return ended.error();
    }
    job_.reset();
    comm_->Heed(stop_);  // not before: until now it was the job's
    return OkStatus();
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
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> said, Agree(*comm_, "meeting", PackHolds(HeldHere(options_))));
    std::vector<RankHolds> ranks;
    directories_.clear();
    for (const std::string& text : said) {
      ranks.push_back(UnpackHolds(text));
      directories_.push_back(ranks.back().directory);
    }
    Result<std::unique_ptr<ExportPlan>> made = Guarded([&] { return MakeExportPlan(*storage_, options_, ranks, comm_->rank(), types_); });
    const Result<std::string> hash = made ? Result<std::string>((*made)->share.plan.hash) : Result<std::string>(made.error());
    CROSSDOCK_RETURN_IF_ERROR(AgreeOnSame(*comm_, "planning", "the plan", hash));
    plan_ = *std::move(made);
    tensors_.clear();
    for (const auto& [name, part] : plan_->mine) {
      const Shape& shape = plan_->ChunkOf(part).box.sizes;
      tensors_.push_back({name, std::string(DTypeName(plan_->EntryOf(part).dtype)), {shape.begin(), shape.end()}, plan_->ChunkOf(part).bytes.length});
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
      CROSSDOCK_RETURN_IF_ERROR(CheckReplaces(*storage_, path, plan_->target.kind));
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
  Result<ExportTypes> Match(std::span<const LiveBuffer> tensors, const std::string& common, std::map<LivePart, const LiveBuffer*>* given) const {
    CROSSDOCK_RETURN_IF_ERROR(CheckCommonGiven(common));
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
      const Entry& entry = plan_->EntryOf(at->second);
      const Chunk& chunk = plan_->ChunkOf(at->second);
      const bool state = IsStateName(tensor.name);
      const std::optional<DType> dtype = DTypeFromName(tensor.dtype);
      if (!given->emplace(at->second, &tensor).second) {
        complaints.Add("given twice", tensor.name);
      } else if (state ? CountOf(tensor.shape) != chunk.box.count() : !std::ranges::equal(tensor.shape, entry.shape)) {
        complaints.Add("of another shape", tensor.name, fmt::format(" [{}] where [{}] is expected", fmt::join(tensor.shape, ", "), fmt::join(chunk.box.sizes, ", ")));
      } else if (state && dtype != entry.dtype) {
        complaints.Add("of another type", tensor.name, fmt::format(" `{}` where `{}` is expected", Printable(tensor.dtype), DTypeName(entry.dtype)));
      } else if (!dtype || !IsFloating(*dtype) || BitsOf(*dtype) < 16) {
        complaints.Add("of an unknown type", tensor.name, fmt::format(" `{}`", Printable(tensor.dtype)));
      } else if (const auto bytes = ByteSize(*dtype, chunk.box.sizes); !bytes || *bytes != tensor.bytes || (tensor.data == nullptr && tensor.bytes > 0)) {
        complaints.Add("of another size", tensor.name, fmt::format(" {} bytes", tensor.bytes));
      } else if (*dtype != entry.dtype) {
        other[entry.name] = *dtype;
      }
    }
    for (const auto& [name, part] : plan_->mine) {
      if (plan_->wanted.contains(part) && !given->contains(part)) complaints.Add("missing", name);
    }
    CROSSDOCK_RETURN_IF_ERROR(complaints.Outcome(kSaveHint));
    return other;
  }

  /// How many elements; -1 for a shape that none has.
  static std::int64_t CountOf(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) {
      const auto product = size < 0 ? std::nullopt : CheckedMul(count, size);
      if (!product) return -1;
      count = *product;
    }
    return count;
  }

  /// Megatron loads no state of an optimizer without its groups.
  [[nodiscard]] Status CheckCommonGiven(const std::string& common) const {
    if (comm_->rank() != 0 || !common.empty() || !plan_->holds_states) return OkStatus();
    return MakeError(ErrorCode::kUsage, "an optimizer's state is saved with the common state that belongs to it, and none was handed over")
        .WithExpected("the bytes of common.pt, with the optimizer's parameter groups");
  }

  /// Collective: all ranks mean one target and learn each other's types. Where those are new, all plan anew.
  Status TellTypes(const Result<std::string>& target, const Result<ExportTypes>& mine) {
    CROSSDOCK_ASSIGN_OR_RETURN(const ExportTypes news, ShareTypes(*comm_, target, mine, directories_));
    if (news.empty()) return OkStatus();
    for (const auto& [name, dtype] : news) types_[name] = dtype;
    return Plan();
  }

  [[nodiscard]] std::int64_t SnapshotBytes() const {
    std::int64_t bytes = 0;
    for (const LivePart& part : plan_->fed) bytes += RoundUp(plan_->ChunkOf(part).bytes.length, 64);
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
  Status HandOver(const std::map<LivePart, const LiveBuffer*>& given, SavingJob* job) {
    const std::int64_t bytes = SnapshotBytes();
    std::byte* to = nullptr;
    if (options_.snapshot) {
      CROSSDOCK_ASSIGN_OR_RETURN(to, snapshot_.Take(bytes));
    }
    for (const LivePart& part : plan_->fed) {
      const Entry& entry = plan_->EntryOf(part);
      const std::int64_t length = plan_->ChunkOf(part).bytes.length;
      const auto found = given.find(part);
      if (found == given.end() || DTypeFromName(found->second->dtype) != entry.dtype || found->second->bytes != length) {
        return MakeError(ErrorCode::kUsage, "a tensor is not what was planned for").WithTensor(entry.name)
            .WithExpected(fmt::format("{} bytes of `{}`", length, DTypeName(entry.dtype)))
            .WithFound(found == given.end() ? "nothing" : fmt::format("{} bytes of `{}`", found->second->bytes, Printable(found->second->dtype)));
      }
      const LiveBuffer& tensor = *found->second;
      const auto* from = static_cast<const std::byte*>(tensor.data);
      const std::span<const std::byte> memory(to != nullptr ? to : from, static_cast<std::size_t>(tensor.bytes));
      if (to != nullptr) {
        kernels::CopyStreaming(from, to, memory.size());
        to += RoundUp(tensor.bytes, 64);
      }
      CROSSDOCK_RETURN_IF_ERROR(job->run().buffers().AddReadOnly(formats::live::BufferName(entry, static_cast<std::size_t>(part.chunk)), memory));
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
  std::shared_ptr<SavingJob> job_;          ///< the last one
  std::stop_token stop_;
};

/// What a torch_dist iteration is not made of.
Status CheckMegatronOptions(const ExportOptions& options) {
  const char* option = options.dtype ? "`dtype`" : options.fp8.strategy ? "`fp8`" : !options.keep_dtype.empty() ? "`keep_dtype`" : options.overwrite ? "`overwrite`" : options.mtp == "template" || options.mtp == "drop" ? "that `mtp`" : nullptr;
  if (option == nullptr) return OkStatus();
  return MakeError(ErrorCode::kUsage, fmt::format("a save of the run itself takes no {}: tensors are stored as they are held", option));
}

Status CheckOptions(const ExportOptions& options) {
  if (options.to != "hf" && options.to != "megatron") return MakeError(ErrorCode::kUsage, "a run saves a Hugging Face directory or a checkpoint of Megatron").WithExpected("`hf` or `megatron`").WithFound(Printable(options.to));
  if (options.to == "megatron") CROSSDOCK_RETURN_IF_ERROR(CheckMegatronOptions(options));
  if (options.to == "hf" && (!options.states.empty() || options.distributed_optimizer)) return MakeError(ErrorCode::kUsage, "a Hugging Face directory holds no optimizer's state").WithHint("save the run itself: to `megatron`");
  CROSSDOCK_RETURN_IF_ERROR(SavePath(options, 0));
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
