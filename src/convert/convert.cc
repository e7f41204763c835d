// SPDX-License-Identifier: Apache-2.0
/// Convert and Manifest: the order of the stations; each station is a file of its own.
#include "crossdock/convert.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <set>

#include "convert/comparison.h"
#include "convert/convert_source.h"
#include "convert/job.h"
#include "convert/kinds.h"
#include "convert/manifest.h"
#include "convert/master_proof.h"
#include "convert/momentum.h"
#include "convert/planned_shards.h"
#include "convert/receipt.h"
#include "convert/summary.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): this file is the room's front door

void Phase(const Hooks& hooks, const char* name) {
  if (hooks.on_progress) hooks.on_progress({name, 0, 0, ""});
}

void TellNotices(const Hooks& hooks, const Source& source, const Target& target) {
  if (!hooks.on_notice) return;
  std::set<std::string> told;
  for (const auto* list : {&source.found.notices, &source.reader->catalog().notices, &source.hub.notices, &target.state.notices}) {
    for (const std::string& line : *list) {
      if (told.insert(line).second) hooks.on_notice(line);
    }
  }
}

bool CarriesOptimizer(const Target& target) {
  for (const Entry& entry : target.placement.catalog.entries) {
    const Slot slot = SlotOfTarget(entry);
    if (slot != Slot::kParam && slot != Slot::kMaster) return true;
  }
  return false;
}

Status CheckOptimizer(const Source& source, const Target& target, const ConvertOptions& options) {
  if (CarriesOptimizer(target)) CROSSDOCK_RETURN_IF_ERROR(CheckCarried(PartitionOf(source.hub, target.exprs)));
  if (!options.require_optim || CarriesOptimizer(target)) return OkStatus();
  return MakeError(ErrorCode::kIncomplete, "the source holds no optimizer state, which `--require-optim` asks for")
      .WithPath(source.found.path)
      .WithHint("leave out `--require-optim` to convert the parameters alone");
}

/// Side files of --tokenizer-model take the place of the model's own.
Status TakeTokenizer(io::Storage& storage, const std::string& path, Source* source) {
  CROSSDOCK_ASSIGN_OR_RETURN(std::vector<SideFile> files, TokenizerFiles(storage, path));
  std::vector<SideFile>& all = source->hub.side_files;
  for (SideFile& file : files) {
    std::erase_if(all, [&](const SideFile& other) { return other.path == file.path; });
    all.push_back(std::move(file));
  }
  return OkStatus();
}

/// Everything up to the plan, for convert, plan and manifest.
struct Prepared {
  Source source;
  Target target;
};

/// `weights`: the source's are there; without them a plan is made, which compares no values.
Result<Prepared> Prepare(io::Storage& storage, const ConvertOptions& options, const Hooks& hooks, bool weights = true) {
  Phase(hooks, "reading metadata");
  CROSSDOCK_ASSIGN_OR_RETURN(const formats::Kind to, ParseTargetKind(options.to));
  const SourceRequest request = RequestOf(options);
  if (request.lora_base && options.resume) {
    return MakeError(ErrorCode::kUsage, "a run that merges adapters of LoRA is not resumed: what it had written does not say by which alpha and which adapters")
        .WithHint("start over without --resume");
  }
  Prepared out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.source, OpenSource(storage, request));
  const Status hub = ReadSourceHub(request, &out.source);
  if (!hub) {
    // Resharding needs no family: what cannot be named is carried as it is, unless the pickle itself is refused.
    // So do steps of Tunix and MaxText that become one another, which may lack a configuration too, or the state of what is not trained.
    const bool steps = formats::IsOrbax(out.source.found.kind) && formats::IsOrbax(to);
    const ErrorCode why = hub.error().code;
    const bool nameless = why == ErrorCode::kUnsupported || (steps && why == ErrorCode::kIncomplete);
    const bool can = (out.source.view || steps) && CanReshard(out.source, to, options) && nameless && !options.verify;
    if (!can) return hub.error();
    if (out.source.view) out.source.hub = {};
    const char* told = why == ErrorCode::kIncomplete ? "no family's rules were held against this checkpoint; its arrays are carried as they are: "
                                                     : "no family is known for this checkpoint; its keys are carried as they are: ";
    out.source.hub.notices.push_back(told + hub.error().message);
  }
  if (WritesMegatron(to) && Allows(options, "missing-optimizer")) {
    CROSSDOCK_RETURN_IF_ERROR(FillMissingMoments(&out.source.hub));
  }
  if (options.tokenizer) CROSSDOCK_RETURN_IF_ERROR(TakeTokenizer(storage, *options.tokenizer, &out.source));
  if (weights) CROSSDOCK_RETURN_IF_ERROR(CheckTiedPair(out.source, options.memory));
  CROSSDOCK_RETURN_IF_ERROR(SettleMomentum(to, options, &out.source));
  Phase(hooks, "planning");
  CROSSDOCK_ASSIGN_OR_RETURN(out.target, PrepareTarget(out.source, options));
  CROSSDOCK_RETURN_IF_ERROR(CheckOptimizer(out.source, out.target, options));
  TellNotices(hooks, out.source, out.target);
  return out;
}

/// The plan says all that moving bytes needs. What led to it is half of the tables, and a run takes long.
void ForgetNames(Prepared* job) {
  job->source.hub.tensors = std::vector<dialects::HubTensor>();
  job->source.hub.order = std::vector<std::string>();
  if (job->source.reference) job->source.reference->order = std::vector<std::string>();
  if (job->source.view) {
    job->source.view->catalog.entries = std::vector<Entry>();
    job->source.view->exprs = std::vector<expr::Expr>();
  }
  if (job->source.tunix) {
    job->source.tunix->catalog.entries = std::vector<Entry>();
    job->source.tunix->catalog.objects.clear();
  }
  job->target.exprs = std::vector<expr::Expr>();
}

/// Planning leaves holes all over the heap, which buffers of megabytes cannot use: a fifth of the tables of a deep model.
void ReturnFreeMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

Result<Report> DifferenceReport(const verify::Comparison& comparison, const Target& target) {
  Report report = ComparisonReport(comparison, {});
  report.text = fmt::format("the result differs from the source; nothing was put at `{}`\n", Printable(target.unit, 4096)) + report.text;
  return report;
}

}  // namespace

std::string VersionString() { return "crossdock " CROSSDOCK_VERSION; }

Result<Report> Convert(const ConvertOptions& options, const Hooks& hooks) {
  const std::unique_ptr<io::Storage> local = io::MakeLocalStorage();
  io::Storage* storage = local.get();
  std::unique_ptr<io::OverlayStorage> planned;
  if (options.dry_run) {
    CROSSDOCK_ASSIGN_OR_RETURN(planned, OverPlannedShards(*local, RequestOf(options)));
    if (planned) storage = planned.get();
  }
  CROSSDOCK_ASSIGN_OR_RETURN(Prepared job, Prepare(*storage, options, hooks, planned == nullptr));
  if (planned) job.source.hub.notices.emplace_back("the weight files are not there: shapes are those of the family's rules, dtypes those of config.json");
  CROSSDOCK_RETURN_IF_ERROR(CheckApart(job.source, options.target, job.target.unit));
  for (const std::optional<std::string>* report : {&options.emit_manifest, &options.receipt}) {
    if (!*report) continue;
    CROSSDOCK_RETURN_IF_ERROR(CheckReportApart(job.source, **report));
    CROSSDOCK_RETURN_IF_ERROR(CheckReportPath(*storage, **report));  // now: a receipt is written when all work is done
  }
  if (options.emit_manifest) {
    CROSSDOCK_RETURN_IF_ERROR(CheckManifestApart(job.target, *options.emit_manifest));
    CROSSDOCK_RETURN_IF_ERROR(WriteReportFile(*storage, *options.emit_manifest, MakeManifest(job.source, job.target)));
  }
  if (options.dry_run) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t free_bytes, FreeBytesAt(*storage, options.target));
    return MakePlanReport(job.source, job.target, options, free_bytes, CheckWouldBegin(*storage, job.target, options));
  }
  if (CarriesOptimizer(job.target) || options.params_from == "master") CROSSDOCK_RETURN_IF_ERROR(ProveMasters(job.source, options, hooks));
  const Tally tally = TallyOf(job.source, job.target);
  if (!options.verify) ForgetNames(&job);
  ReturnFreeMemory();
  CROSSDOCK_ASSIGN_OR_RETURN(const JobResult result, RunJob(job.source, &job.target, *storage, options, hooks));
  if (!result.equal) return DifferenceReport(result.comparison, job.target);
  if (options.receipt) {
    CROSSDOCK_RETURN_IF_ERROR(WriteReportFile(*storage, *options.receipt, MakeReceipt(job.source, job.target, result.outcome.report)));
  }
  return MakeSummary(job.source, job.target, options, tally, result.outcome);
}

Result<Report> Manifest(const ConvertOptions& asked, const Hooks& hooks) {
  ConvertOptions options = asked;
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  if (options.to.empty()) {
    // Without --to: the way a checkpoint usually goes.
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<formats::Kind> from, ParseSourceKind(options.from));
    CROSSDOCK_ASSIGN_OR_RETURN(const formats::Found found, formats::Recognise(*storage, options.source, options.step, from));
    options.to = IsMegatron(found.kind) ? "hf" : "megatron";
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const Prepared job, Prepare(*storage, options, hooks));
  Report report;
  report.json = MakeManifest(job.source, job.target);
  report.text = report.json;
  if (options.emit_manifest) {
    CROSSDOCK_RETURN_IF_ERROR(CheckReportApart(job.source, *options.emit_manifest));
    CROSSDOCK_RETURN_IF_ERROR(CheckManifestApart(job.target, *options.emit_manifest));
    CROSSDOCK_RETURN_IF_ERROR(WriteReportFile(*storage, *options.emit_manifest, report.json));
    report.text = fmt::format("the mapping of {} tensors was written to `{}`\n", job.target.placement.catalog.entries.size(),
                              Printable(*options.emit_manifest, 4096));
  }
  return report;
}

}  // namespace crossdock
