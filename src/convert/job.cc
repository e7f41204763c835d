// SPDX-License-Identifier: Apache-2.0
#include "convert/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <utility>

#include "convert/config_family.h"
#include "convert/kinds.h"
#include "convert/receipt.h"
#include "convert/replaced.h"
#include "convert/request_words.h"
#include "dialects/hf/fp8_config.h"
#include "execute/executor.h"
#include "io/staging.h"

namespace crossdock::convert {
namespace {

using Clock = std::chrono::steady_clock;

/// The largest RssAnon that a progress callback saw: the kernel keeps a peak of the whole RSS only.
struct MemoryWatch {
  std::int64_t peak = 0;
  void Look() { peak = std::max(peak, AnonymousNow()); }
};

void Tell(const Hooks& hooks, const std::string& phase, std::int64_t done = 0, std::int64_t total = 0) {
  if (hooks.on_progress) hooks.on_progress({phase, done, total, ""});
}

/// A resumed run keeps the tensor files and writes everything else anew.
Status KeepTensorFiles(const Target& target, io::Staging& staging) {
  if (!staging.resuming()) return OkStatus();
  std::vector<std::string> files;
  for (const FileRef& file : target.placement.catalog.files) files.push_back(file.path);
  return staging.KeepOnly(files);
}

/// Masters that the target makes of the parameters, where the source has moments but no masters.
Status ExpectMadeMasters(const dialects::HubState& result, dialects::HubState* expected) {
  const auto is_master = [](const dialects::HubTensor& t) { return t.slot == Slot::kMaster; };
  if (std::ranges::any_of(expected->tensors, is_master)) return OkStatus();
  std::map<std::string_view, const dialects::HubTensor*> params;
  for (const dialects::HubTensor& t : expected->tensors) {
    if (t.slot == Slot::kParam) params[t.name] = &t;
  }
  std::vector<dialects::HubTensor> made;
  for (const dialects::HubTensor& t : result.tensors) {
    const auto param = params.find(t.name);
    if (!is_master(t) || param == params.end()) continue;
    dialects::HubTensor master = *param->second;
    master.slot = Slot::kMaster;
    CROSSDOCK_ASSIGN_OR_RETURN(master.expr, expr::Cast(master.expr, t.dtype));
    master.dtype = t.dtype;
    made.push_back(std::move(master));
  }
  expected->tensors.insert(expected->tensors.end(), made.begin(), made.end());
  std::ranges::sort(expected->tensors, [](const auto& a, const auto& b) { return std::tie(a.name, a.slot) < std::tie(b.name, b.slot); });
  return OkStatus();
}

/// The source's hub as the target shall have it: with --dtype or --params-from, parameters are compared after that.
Result<dialects::HubState> ExpectedHub(const dialects::HubState& source, const dialects::HubState& result, bool from_master) {
  std::map<std::pair<std::string_view, Slot>, const dialects::HubTensor*> written, masters;
  for (const dialects::HubTensor& t : result.tensors) written[{t.name, t.slot}] = &t;
  for (const dialects::HubTensor& t : source.tensors) masters[{t.name, t.slot}] = &t;
  dialects::HubState out = source;
  CROSSDOCK_RETURN_IF_ERROR(ExpectMadeMasters(result, &out));
  for (dialects::HubTensor& t : out.tensors) {
    const auto found = written.find({t.name, t.slot});
    if (found == written.end() || t.slot != Slot::kParam) continue;
    const auto master = masters.find({t.name, Slot::kMaster});
    if (from_master && master != masters.end()) {
      t.expr = master->second->expr;
      t.dtype = master->second->dtype;
    }
    if (t.dtype == found->second->dtype) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(t.expr, expr::Cast(t.expr, found->second->dtype));
    t.dtype = found->second->dtype;
  }
  return out;
}

Result<verify::Comparison> CompareResult(const Source& source, const Source& result, const Target& target,
                                         const ConvertOptions& options, const Hooks& hooks) {
  const std::vector<dialects::HubTensor>& tensors = source.hub.tensors;
  CROSSDOCK_ASSIGN_OR_RETURN(dialects::HubState expected,
                             ExpectedHub(source.hub, result.hub, options.params_from == "master"));
  // What the source does not count, the target counts from what it was told (--iteration) or from nothing.
  const auto fill = [](std::optional<std::int64_t>* mine, const std::optional<std::int64_t>& written) {
    if (!*mine) *mine = written;
  };
  fill(&expected.counters.step, result.hub.counters.step);
  fill(&expected.counters.adam_count, result.hub.counters.adam_count);
  fill(&expected.counters.consumed_train_samples, result.hub.counters.consumed_train_samples);
  if (!HoldsMasters(target.kind)) std::erase_if(expected.tensors, [](const auto& t) { return t.slot == Slot::kMaster; });
  verify::Options how;
  how.params_only = !HoldsOptimizer(target.kind) ||
                    std::ranges::none_of(tensors, [](const auto& t) { return t.slot != Slot::kParam; });
  how.memory = options.memory;
  how.stop = hooks.stop;
  how.on_progress = [&hooks](std::int64_t done, std::int64_t total) { Tell(hooks, "verifying", done, total); };
  return verify::Compare({source.storage, source.reader.get(), &expected, source.label},
                         {result.storage, result.reader.get(), &result.hub, "the result"}, how);
}

/// What is quantized has no hub tensor to be compared with: every stored tensor of the result is held against the expression that it
/// was to be made by.
Result<verify::Comparison> CompareStoredTensors(const Source& source, const Source& result, const Target& target, const ConvertOptions& options, const Hooks& hooks) {
  dialects::HubState expected, found;
  const std::vector<Entry>& planned = target.placement.catalog.entries;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const Entry& entry = planned[i];
    const std::int32_t at = result.reader->catalog().Find(entry.name);
    expected.tensors.push_back({entry.name, Slot::kParam, entry.dtype, entry.shape, target.exprs[i]});
    found.tensors.push_back({entry.name, Slot::kParam, entry.dtype, entry.shape, expr::Leaf(at, entry.dtype, entry.shape)});  // counted before: it is there
  }
  verify::Options how;
  how.params_only = true;
  how.memory = options.memory;
  how.stop = hooks.stop;
  how.on_progress = [&hooks](std::int64_t done, std::int64_t total) { Tell(hooks, "verifying", done, total); };
  return verify::Compare({source.storage, source.reader.get(), &expected, source.label}, {result.storage, result.reader.get(), &found, "the result"}, how);
}

std::vector<io::Marker> Markers(const Target& target) {
  std::vector<io::Marker> markers;
  for (const SideFile& file : target.placement.catalog.side_files) {
    if (file.role == SideFile::Role::kMarker) markers.push_back({io::JoinPath(target.root, file.path), file.bytes.value_or("")});
  }
  return markers;
}

/// One run within its staging directory; RunJob decides what becomes of that directory when this fails.
class Run {
 public:
  Run(const Source& source, Target* target, io::Storage& storage, const ConvertOptions& options, const Hooks& hooks)
      : source_(source), target_(*target), storage_(storage), options_(options), hooks_(hooks) {}

  Status InStaging(io::Staging& staging) {
    if (staging.completed()) return Complete(staging);
    CROSSDOCK_RETURN_IF_ERROR(KeepTensorFiles(target_, staging));
    CROSSDOCK_RETURN_IF_ERROR(CheckSpace(storage_, target_, staging));
    CROSSDOCK_RETURN_IF_ERROR(Execute(staging));
    Tell(hooks_, "writing metadata");
    CROSSDOCK_ASSIGN_OR_RETURN(result_.outcome.copied_files, WriteSideFiles(*source_.storage, target_, storage_, staging.dir()));
    CROSSDOCK_RETURN_IF_ERROR(target_.writer->WriteMetadata(target_.placement.catalog, storage_, staging.dir()));
    CROSSDOCK_RETURN_IF_ERROR(Prove(staging.dir()));
    if (hooks_.stop.stop_requested()) return MakeError(ErrorCode::kCancelled, "interrupted before the target was put in place");
    if (!result_.equal) return OkStatus();
    Tell(hooks_, "syncing");
    return staging.Commit(Markers(target_));
  }

  JobResult Take() {
    memory_.Look();
    result_.outcome.measures.peak_anonymous = memory_.peak;
    result_.outcome.measures.peak_rss = PeakRss();
    result_.outcome.measures.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return std::move(result_);
  }

 private:
  /// Nothing is left to write: the interrupted run had only its commit left, which Begin has finished, or a whole target
  /// was there. What is there is counted, and with --verify compared.
  Status Complete(const io::Staging& staging) {
    if (options_.receipt) {
      return MakeError(ErrorCode::kUsage, "the target is complete already, and a receipt is made while it is written")
          .WithPath(target_.unit)
          .WithHint("leave `--receipt` out, or write the target anew with `--force` in place of `--resume`");
    }
    result_.outcome.complete_before = true;
    const Status proven = Prove(target_.unit);
    if (proven || staging.earlier() == io::Earlier::kCommitted || proven.error().code == ErrorCode::kCancelled) return proven;
    const Error& why = proven.error();
    return MakeError(ErrorCode::kUsage, "the target exists already, and is not what this command writes")
        .WithPath(target_.unit)
        .WithTensor(why.tensor)
        .WithExpected(why.expected)
        .WithFound(why.found.empty() ? why.message : why.found)
        .WithHint("choose another target, or replace this one with --force");
  }

  Status Execute(const io::Staging& staging) {
    execute::ExecuteOptions how;
    how.threads = target_.threads;
    how.memory = options_.memory;
    how.digests = options_.receipt.has_value();
    how.allow_nonfinite = Allows(options_, "nonfinite");
    how.cuda = options_.fp8.device == "cuda";
    how.resume = staging.resuming();
    how.request = RequestWords(options_);
    how.stop = hooks_.stop;
    how.on_progress = [this](const execute::Progress& p) {
      memory_.Look();
      if (hooks_.on_progress) hooks_.on_progress({"converting", p.bytes_done, p.bytes_total, p.current});
    };
    CROSSDOCK_ASSIGN_OR_RETURN(result_.outcome.report,
                               execute::Execute(target_.plan, *source_.storage, *source_.reader, storage_, staging.dir(),
                                                target_.placement, std::move(target_.placement.frames), *target_.writer, how));
    execute::TakePlaces(result_.outcome.report, &target_.placement.catalog);
    result_.outcome.report.encoded = {};  // a deep model has a hundred thousand
    return OkStatus();
  }

  Status Prove(const std::string& dir) {
    Tell(hooks_, "opening the result");
    CROSSDOCK_ASSIGN_OR_RETURN(Source result, OpenResult(storage_, dir, target_.kind, target_));
    CROSSDOCK_ASSIGN_OR_RETURN(result_.outcome.reopened, CountAgain(target_.placement.catalog, result.reader->catalog(), dir));
    const bool chosen = options_.family.has_value() || options_.rules.has_value();
    CROSSDOCK_RETURN_IF_ERROR(CheckResultFamily(result.reader->catalog(), source_.hub, chosen));
    const bool fp8 = !target_.state.scale_of.empty();
    if (fp8) CROSSDOCK_RETURN_IF_ERROR(dialects::hf::CheckFp8List(result.reader->catalog()));
    if (!options_.verify) return OkStatus();
    if (fp8) {
      CROSSDOCK_ASSIGN_OR_RETURN(result_.comparison, CompareStoredTensors(source_, result, target_, options_, hooks_));
      result_.outcome.verified = true;
      result_.equal = result_.comparison.passed;
      return OkStatus();
    }
    SourceRequest request;
    request.allow = options_.allow;
    request.rules = options_.rules;
    if (source_.hub.family != nullptr) request.family = source_.hub.family->name;
    CROSSDOCK_RETURN_IF_ERROR(ReadSourceHub(request, &result));
    CROSSDOCK_ASSIGN_OR_RETURN(result_.comparison, CompareResult(source_, result, target_, options_, hooks_));
    result_.outcome.verified = true;
    result_.equal = result_.comparison.passed;
    return OkStatus();
  }

  const Source& source_;
  Target& target_;
  io::Storage& storage_;
  const ConvertOptions& options_;
  const Hooks& hooks_;
  JobResult result_;
  MemoryWatch memory_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

Status CheckSpace(io::Storage& storage, const Target& target, const io::Staging& staging) {
  std::int64_t needed = 0;
  for (const FileRef& file : target.AllFiles()) {
    // What an interrupted run has reserved already is not needed again.
    const Result<io::FileInfo> there = storage.Stat(io::JoinPath(staging.dir(), file.path));
    needed += std::max<std::int64_t>(0, file.identity.size - (there ? there->size : 0));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const io::Capabilities can, storage.Probe(staging.dir()));
  if (needed <= can.free_bytes) return OkStatus();
  return MakeError(ErrorCode::kNoSpace, "there is not enough space for the target")
      .WithPath(target.root)
      .WithExpected(fmt::format("{} bytes ({})", needed, HumanBytes(needed)))
      .WithFound(fmt::format("{} bytes free ({})", can.free_bytes, HumanBytes(can.free_bytes)))
      .WithHint("free some space, or name a target on another file system");
}

Result<std::int64_t> WriteSideFiles(io::Storage& from, const Target& target, io::Storage& storage, const std::string& dir) {
  std::int64_t written = 0;
  for (const SideFile& file : target.placement.catalog.side_files) {
    if (file.role == SideFile::Role::kMarker) continue;
    CROSSDOCK_RETURN_IF_ERROR(io::CheckRelativePath(file.path));
    const std::string path = io::JoinPath(dir, file.path);
    const std::string parent = io::ParentPath(path);
    if (parent != dir) CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, parent));
    CROSSDOCK_RETURN_IF_ERROR(file.bytes ? io::WriteSmallFile(storage, path, *file.bytes)
                                         : io::CopyFile(from, file.copy_from, storage, path));
    ++written;
  }
  return written;
}

Result<std::int64_t> CountAgain(const Catalog& placed, const Catalog& read, const std::string& dir) {
  const auto differs = [&](const std::string& tensor, const std::string& expected, const std::string& found) {
    return MakeError(ErrorCode::kCorrupt, "the result is not what was planned when it is opened again")
        .WithPath(dir)
        .WithTensor(tensor)
        .WithExpected(expected)
        .WithFound(found)
        .WithHint("if an interrupted run was another conversion, start anew with `--force`; else this is a fault of crossdock");
  };
  for (const Entry& entry : placed.entries) {
    const std::int32_t at = read.Find(entry.name);
    const std::string expected = fmt::format("{} {}", DTypeName(entry.dtype), ToString(entry.shape));
    if (at < 0) return differs(entry.name, expected, "no such tensor");
    const Entry& other = read.entries[static_cast<std::size_t>(at)];
    if (other.dtype != entry.dtype || other.shape != entry.shape) {
      return differs(entry.name, expected, fmt::format("{} {}", DTypeName(other.dtype), ToString(other.shape)));
    }
  }
  // Values that the target was given are no entries of the plan; a reader lists the arrays that hold them.
  const auto scalars = placed.objects.find("scalars");
  const auto given = [&](const Entry& entry) { return scalars != placed.objects.end() && scalars->second.Find(entry.name) != nullptr; };
  const auto values = static_cast<std::size_t>(std::ranges::count_if(read.entries, given));
  if (read.entries.size() != placed.entries.size() + values) {
    return differs("", fmt::format("{} tensors", placed.entries.size()), fmt::format("{}", read.entries.size()));
  }
  return static_cast<std::int64_t>(placed.entries.size());
}

Result<std::int64_t> FreeBytesAt(io::Storage& storage, const std::string& path) {
  std::string at = path;
  while (!at.empty() && at != "/" && !io::Exists(storage, at)) {
    const std::string parent = io::ParentPath(at);
    if (parent == at) break;
    at = parent;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const io::Capabilities can, storage.Probe(at.empty() ? "." : at));
  return can.free_bytes;
}

Status CheckReportPath(io::Storage& storage, const std::string& path) {
  const Result<io::FileInfo> there = storage.Stat(path);
  if (!there || there->kind == io::FileKind::kFile) return OkStatus();
  return MakeError(ErrorCode::kUsage, "a report replaces a file or makes a new one, and this is neither")
      .WithPath(path)
      .WithFound(there->kind == io::FileKind::kDirectory ? "a directory" : "a device, a pipe or a socket")
      .WithHint("name a file; with --json the result comes on stdout");
}

Status WriteReportFile(io::Storage& storage, const std::string& path, const std::string& text) {
  CROSSDOCK_RETURN_IF_ERROR(CheckReportPath(storage, path));
  const std::string parent = io::ParentPath(path);
  if (!parent.empty() && !io::Exists(storage, parent)) CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, parent));
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  Status done = io::WriteSmallFile(storage, temporary, text);
  if (done) done = storage.Rename(temporary, path);
  if (!done) (void)io::RemoveFileIfPresent(storage, temporary);  // the first error is the one to tell
  return done;
}

Status CheckWouldBegin(io::Storage& storage, const Target& target, const ConvertOptions& options) {
  if (options.force) {
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::optional<std::string> replaced, WhatIsReplaced(storage, target.unit));
  }
  return io::CheckTarget(storage, target.unit, {options.force, options.resume});
}

Result<Source> OpenResult(io::Storage& storage, const std::string& dir, formats::Kind kind, const Target& target) {
  Source result;
  result.label = target.unit;
  result.storage = &storage;
  result.found.kind = kind;
  result.found.path = dir;
  result.found.step = target.placement.catalog.step;
  CROSSDOCK_ASSIGN_OR_RETURN(result.reader, formats::Open(storage, result.found));
  return result;
}

Result<JobResult> RunJob(const Source& source, Target* target, io::Storage& storage, const ConvertOptions& options,
                         const Hooks& hooks) {
  std::optional<std::string> replaced;
  if (options.force) {
    CROSSDOCK_ASSIGN_OR_RETURN(replaced, WhatIsReplaced(storage, target->unit));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<io::Staging> staging,
                             io::Staging::Begin(storage, target->unit, {options.force, options.resume}));
  // Another conversion's work is not this one's to change or to remove.
  if (staging->resuming()) CROSSDOCK_RETURN_IF_ERROR(execute::CheckSameRun(storage, staging->dir(), target->plan, RequestWords(options)));
  Run run(source, target, storage, options, hooks);
  const Status status = run.InStaging(*staging);
  JobResult result = run.Take();
  result.outcome.dropped = staging->earlier() == io::Earlier::kDropped;
  result.outcome.replaced = std::move(replaced);
  if (!status) {
    Error error = status.error();
    if (error.code == ErrorCode::kCancelled) {
      if (error.hint.empty()) error.hint = "run the same command with `--resume` to go on";
      return error;
    }
    const Status removed = staging->Discard();
    if (!removed) error.context.push_back("removing the staging directory failed too: " + removed.error().message);
    return error;
  }
  if (!result.equal) CROSSDOCK_RETURN_IF_ERROR(staging->Discard());
  return result;
}

}  // namespace crossdock::convert
