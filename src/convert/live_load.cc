// SPDX-License-Identifier: Apache-2.0
// A rank holds exactly what its file of a legacy checkpoint would hold. So a load is the conversion into that form, kept to what one rank
// takes of it before anything is planned, with the caller's tensors in the place of files.
#include "convert/live_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "convert/convert_source.h"
#include "convert/live_names.h"
#include "convert/live_options.h"
#include "convert/scratch_dir.h"
#include "convert/source.h"
#include "convert/target.h"
#include "convert/tensor_complaints.h"
#include "execute/executor.h"
#include "formats/live/buffer_storage.h"
#include "formats/live/live.h"
#include "plan/planner.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): the room's own names

constexpr const char* kLoadHint = "nothing was read; compare the layout, the spelling of the layers and the dtype of the plan with the model's";

ConvertOptions AsConversion(const LoadOptions& options) {
  ConvertOptions out;
  out.source = options.path;
  out.to = "megatron-legacy";
  out.from = options.from;
  out.step = options.step;
  out.family = options.family;
  out.rules = options.rules;
  out.hf_template = options.hf_template;
  out.layout = options.layout;
  out.layout.given = true;
  out.dtype = options.dtype;
  out.consumer = options.consumer;
  out.keep_dtype = options.keep_dtype;
  out.vocab_divisor = options.vocab_divisor;
  out.padded_vocab = options.padded_vocab;
  out.mtp = options.mtp;
  out.allow = options.allow;
  out.no_optim = true;
  out.set_args = options.set_args;
  NameModules(options.local_layers, options.grouped_experts, &out.set_args);
  return out;
}

Status CheckPlace(const LayoutOptions& options, const RankPlace& place) {
  const int etp = options.etp > 0 ? options.etp : options.tp;
  for (const auto& [what, at, size] : {std::tuple{"tensor", place.tensor, options.tp}, {"stage", place.stage, options.pp},
                                       {"expert", place.expert, options.ep}, {"expert tensor", place.expert_tensor, etp}}) {
    if (at >= 0 && at < size) continue;
    return MakeError(ErrorCode::kUsage, fmt::format("there is no such {} rank in this layout", what))
        .WithExpected(fmt::format("a rank from 0 to {}", size - 1))
        .WithFound(fmt::format("{}", at));
  }
  return OkStatus();
}

class RankLoadPlan final : public LoadPlan {
 public:
  explicit RankLoadPlan(io::Storage& storage) : storage_(&storage) {}
  explicit RankLoadPlan(std::unique_ptr<io::Storage> storage) : owned_(std::move(storage)), storage_(owned_.get()) {}

  Status Prepare(const LoadOptions& options, const Hooks& hooks) {
    if (options.mtp != "keep" && options.mtp != "drop") {
      return MakeError(ErrorCode::kUsage, "layers of multi-token prediction are kept or dropped").WithExpected("`keep` or `drop`").WithFound(Printable(options.mtp));
    }
    if (options.dtype && *options.dtype != "bf16" && *options.dtype != "fp16" && *options.dtype != "fp32") {
      return MakeError(ErrorCode::kUsage, "parameters are cast to a float type of 16 or 32 bits").WithExpected("`bf16`, `fp16` or `fp32`").WithFound(Printable(*options.dtype));
    }
    CROSSDOCK_RETURN_IF_ERROR(CheckPlace(options.layout, options.place));
    if (hooks.on_progress) hooks.on_progress({"reading metadata", 0, 0, ""});
    const ConvertOptions conversion = AsConversion(options);
    allow_nonfinite_ = Allows(conversion, "nonfinite");
    CROSSDOCK_ASSIGN_OR_RETURN(source_, OpenAndRead(*storage_, RequestOf(conversion)));
    if (options.place == RankPlace{}) CROSSDOCK_RETURN_IF_ERROR(CheckTiedPair(source_, conversion.memory));
    const RankPlace& at = options.place;
    CROSSDOCK_ASSIGN_OR_RETURN(dialects::TargetState state, ArrangeTarget(source_, formats::Kind::kMegatronLegacy, conversion,
                                                                          dialects::mcore::LegacyRankPlace{at.tensor, at.stage, at.expert, at.expert_tensor}));
    for (const std::vector<std::string>* list : std::initializer_list<const std::vector<std::string>*>{&source_.found.notices, &source_.reader->catalog().notices, &source_.hub.notices, &state.notices}) {
      for (const std::string& line : *list) {
        if (std::ranges::find(notices_, line) == notices_.end()) notices_.push_back(line);
      }
    }
    TakeTensors(std::move(state));
    // What led to the expressions is half of the tables, and a trainer has better use for the memory.
    source_.hub = {};
    source_.view.reset();
    return OkStatus();
  }

  const std::vector<LiveTensor>& tensors() const override { return tensors_; }
  const std::vector<std::string>& notices() const override { return notices_; }

  Result<LoadReport> ReadInto(std::span<const LiveBuffer> buffers, const ReadIntoOptions& options, const Hooks& hooks) override {
    formats::live::BufferStorage target("live");
    CROSSDOCK_ASSIGN_OR_RETURN(Wanted wanted, Match(buffers, options, &target));
    ScratchDir scratch(*storage_);
    if (HoldsEncoded(source_.reader->catalog())) {
      CROSSDOCK_RETURN_IF_ERROR(scratch.Make());
      target.KeepOthersIn(*storage_, scratch.path());
    }
    const auto writer = formats::live::MakeLiveWriter();
    CROSSDOCK_ASSIGN_OR_RETURN(const formats::Placement placement, writer->LayOut(std::move(wanted.catalog)));
    plan::PlanOptions how_planned;
    how_planned.memory = options.memory;
    how_planned.threads = ThreadCount(options.threads);
    CROSSDOCK_ASSIGN_OR_RETURN(const plan::Plan plan, plan::MakePlan(source_.reader->catalog(), placement.catalog, wanted.exprs, how_planned));
    execute::ExecuteOptions how;
    how.threads = how_planned.threads;
    how.memory = options.memory;
    how.allow_nonfinite = allow_nonfinite_;
    how.into_existing = true;
    how.exact_reads = true;
    how.stop = hooks.stop;
    how.on_progress = [&hooks](const execute::Progress& p) {
      if (hooks.on_progress) hooks.on_progress({"loading", p.bytes_done, p.bytes_total, p.current});
    };
    Result<execute::ExecuteReport> done = execute::Execute(plan, *storage_, *source_.reader, target, target.root(), placement, {}, *writer, how);
    if (!done) return InLiveWords(std::move(done).error());
    LoadReport report;
    report.tensors = static_cast<std::int64_t>(placement.catalog.entries.size());
    report.bytes_read = done->bytes_read;
    report.bytes_written = done->bytes_written;
    report.peak_buffer_bytes = done->peak_buffer_bytes;
    report.notices = notices_;
    return report;
  }

 private:
  struct Wanted {
    Catalog catalog;
    std::vector<expr::Expr> exprs;
  };

  void TakeTensors(dialects::TargetState state) {
    for (std::size_t i = 0; i < state.catalog.entries.size(); ++i) {
      Entry& entry = state.catalog.entries[i];
      const std::optional<std::string> name = LiveName(entry.name);
      if (!name) continue;
      entry.name = *name;
      const Result<std::int64_t> bytes = ByteSize(entry.dtype, entry.shape);
      tensors_.push_back({entry.name, std::string(DTypeName(entry.dtype)), {entry.shape.begin(), entry.shape.end()}, bytes ? *bytes : 0});
      entries_.push_back(std::move(entry));
      exprs_.push_back(std::move(state.exprs[i]));
    }
  }

  /// The buffers of this rank's tensors in the order of the tensors.
  Result<Wanted> Match(std::span<const LiveBuffer> buffers, const ReadIntoOptions& options, formats::live::BufferStorage* target) const {
    std::map<std::string_view, const LiveBuffer*> given;
    TensorComplaints agreement;
    for (const LiveBuffer& buffer : buffers) {
      if (!given.emplace(buffer.name, &buffer).second) agreement.Add("given twice", buffer.name);
    }
    Wanted out;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const auto found = given.find(entries_[i].name);
      if (found == given.end()) {
        if (options.strict) agreement.Add("missing", entries_[i].name);
        continue;
      }
      const LiveBuffer& buffer = *found->second;
      given.erase(found);
      Entry entry = entries_[i];
      expr::Expr expr = exprs_[i];
      CROSSDOCK_RETURN_IF_ERROR(Fit(buffer, options, &entry, &expr, &agreement));
      CROSSDOCK_RETURN_IF_ERROR(target->Add(entry.name, {static_cast<std::byte*>(buffer.data), static_cast<std::size_t>(buffer.bytes)}));
      out.catalog.entries.push_back(std::move(entry));
      out.exprs.push_back(std::move(expr));
    }
    if (options.strict) {
      for (const auto& [name, buffer] : given) agreement.Add("not of this rank", std::string(name));
    }
    CROSSDOCK_RETURN_IF_ERROR(agreement.Outcome(kLoadHint));
    return out;
  }

  static Status Fit(const LiveBuffer& buffer, const ReadIntoOptions& options, Entry* entry, expr::Expr* expr, TensorComplaints* agreement) {
    const std::optional<DType> dtype = DTypeFromName(buffer.dtype);
    if (!std::ranges::equal(buffer.shape, entry->shape)) {
      agreement->Add("of another shape", entry->name, fmt::format(" [{}] where [{}] is expected", fmt::join(buffer.shape, ", "), fmt::join(entry->shape, ", ")));
      return OkStatus();
    }
    if (dtype != entry->dtype) {
      const bool can = options.cast && dtype && IsFloating(*dtype) && BitsOf(*dtype) >= 16 && IsFloating(entry->dtype);
      if (!can) {
        agreement->Add("of another dtype", entry->name, fmt::format(" {} where {} is expected", Printable(buffer.dtype), DTypeName(entry->dtype)));
        return OkStatus();
      }
      CROSSDOCK_ASSIGN_OR_RETURN(*expr, expr::Cast(std::move(*expr), *dtype));
      entry->dtype = *dtype;
    }
    const Result<std::int64_t> bytes = ByteSize(entry->dtype, entry->shape);
    if (bytes && *bytes == buffer.bytes && (buffer.data != nullptr || buffer.bytes == 0)) return OkStatus();
    agreement->Add("of another size", entry->name, fmt::format(" {} bytes", buffer.bytes));
    return OkStatus();
  }

  /// What a stopped reading leaves, and the next step.
  static Error InLiveWords(Error error) {
    if (error.code == ErrorCode::kCancelled) error.hint = "the tensors hold some new and some old values: read into them again";
    return error;
  }

  const std::unique_ptr<io::Storage> owned_;
  io::Storage* const storage_;
  Source source_;
  std::vector<Entry> entries_;        ///< by this rank's names
  std::vector<expr::Expr> exprs_;
  std::vector<LiveTensor> tensors_;
  std::vector<std::string> notices_;
  bool allow_nonfinite_ = false;
};

}  // namespace

namespace convert {

Result<std::unique_ptr<LoadPlan>> MakeLoadPlan(io::Storage& storage, const LoadOptions& options, const Hooks& hooks) {
  auto plan = std::make_unique<RankLoadPlan>(storage);
  CROSSDOCK_RETURN_IF_ERROR(plan->Prepare(options, hooks));
  return std::unique_ptr<LoadPlan>(std::move(plan));
}

}  // namespace convert

Result<std::unique_ptr<LoadPlan>> LoadPlan::Make(const LoadOptions& options, const Hooks& hooks) {
  auto plan = std::make_unique<RankLoadPlan>(io::MakeLocalStorage());
  CROSSDOCK_RETURN_IF_ERROR(plan->Prepare(options, hooks));
  return std::unique_ptr<LoadPlan>(std::move(plan));
}

}  // namespace crossdock
