// SPDX-License-Identifier: Apache-2.0
/// Watch: looks at a run, converts what is new, calls the hook.
#include "crossdock/watch.h"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "convert/hook_record.h"
#include "convert/kinds.h"
#include "convert/paths.h"
#include "convert/run_steps.h"
#include "convert/summary.h"
#include "crossdock/live_save.h"
#include "tensor/value.h"

namespace crossdock {
namespace {

using namespace convert;  // NOLINT(google-build-using-namespace): one of the room's doors

std::string Shown(const std::string& path) { return "`" + Printable(path, 4096) + "`"; }

class Watcher {
 public:
  Watcher(io::Storage& storage, const WatchOptions& options, const Hooks& hooks) : storage_(storage), options_(options), hooks_(hooks) {}

  Result<Report> Run() {
    CROSSDOCK_RETURN_IF_ERROR(CheckEnds());
    while (true) {
      CROSSDOCK_RETURN_IF_ERROR(Look());
      if (options_.once) return MakeReport();
      if (!Sleep()) return Stopped();
    }
  }

 private:
  void Notice(const std::string& text) const {
    if (hooks_.on_notice) hooks_.on_notice(text);
  }

  static Error Stopped() {
    return MakeError(ErrorCode::kCancelled, "the watch was ended").WithHint("the same command goes on where it was");
  }

  Result<std::string> TargetOf(std::int64_t step) const {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string path, ExportPath(options_.convert.target, false, step));
    return io::AbsolutePath(path);
  }

  Status CheckEnds() const {
    const std::string& root = options_.convert.source;
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage_.Stat(root));
    if (info.kind != io::FileKind::kDirectory) return MakeError(ErrorCode::kUsage, "what is watched is the directory of a run, and this is a file").WithPath(root);
    CROSSDOCK_ASSIGN_OR_RETURN(const formats::Kind to, ParseTargetKind(options_.convert.to));
    if (to != formats::Kind::kHf) {
      return MakeError(ErrorCode::kUnsupported, "a watch exports Hugging Face directories").WithFound(fmt::format("`--to {}`", formats::KindName(to)))
          .WithExpected("`--to hf`");
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string first, TargetOf(0));
    // Among the steps an export would be taken for one of them, and within a step the run is written into.
    for (const std::string& place : {root, io::JoinPath(root, "checkpoints")}) {
      const std::string within = Canonical(io::AbsolutePath(place));
      std::string top = Canonical(first);
      if (!Inside(top, within) || top == within) continue;
      while (io::ParentPath(top) != within) top = io::ParentPath(top);
      if (top != Canonical(first) && io::BaseName(top) != "release" && !formats::StepOfName(io::BaseName(top))) continue;
      return MakeError(ErrorCode::kUsage, "the exports would lie among the run's own steps").WithPath(options_.convert.target)
          .WithHint("name another directory, or one below: " + Shown(io::JoinPath(root, "hf")));
    }
    return OkStatus();
  }

  /// Everything that is complete and not yet exported, in the order of the steps.
  Status Look() {
    const RunSteps run = StepsOfRun(storage_, options_.convert.source);
    const Result<std::vector<RunStep>> steps = AnnouncedSteps(storage_, run);
    if (!steps) {
      // The trainer may be writing its tracker this moment.
      if (options_.once) return steps.error();
      TellOnce("", steps.error());
      return OkStatus();
    }
    for (const RunStep& step : *steps) {
      if (hooks_.stop.stop_requested()) return Stopped();
      CROSSDOCK_RETURN_IF_ERROR(Export(step));
    }
    return OkStatus();
  }

  Status Export(const RunStep& step) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string target, TargetOf(step.dir.step));
    if (!io::Exists(storage_, target)) {
      if (hopeless_.contains(step.path)) return OkStatus();
      const Status done = ConvertStep(step, target);
      if (!done) return Judge(step, done.error());
      exported_.push_back({step.dir.step, target, DTypeOf(target)});
      Notice(fmt::format("step {} is exported: {}", step.dir.step, Shown(target)));
    }
    failed_.erase(step.path);
    return CallHook({step.dir.step, target, ""});
  }

  Status ConvertStep(const RunStep& step, const std::string& target) const {
    ConvertOptions options = options_.convert;
    options.source = step.path;
    options.target = target;
    options.step.reset();
    options.force = options.dry_run = false;
    options.resume = true;
    Hooks hooks = hooks_;
    hooks.on_notice = nullptr;
    CROSSDOCK_ASSIGN_OR_RETURN(const Report report, Convert(options, hooks));
    if (report.equal) return OkStatus();
    return MakeError(ErrorCode::kCorrupt, "what was written differs from the source, and was put nowhere").WithPath(target);
  }

  /// Whether the watch can go on after a step that could not be exported.
  Status Judge(const RunStep& step, const Error& error) {
    if (error.code == ErrorCode::kUsage || error.code == ErrorCode::kNoSpace || error.code == ErrorCode::kCancelled) return error;
    if (!io::Exists(storage_, step.path)) {  // a run that keeps few steps removes the oldest
      Notice(fmt::format("step {} was removed by the run while it was exported", step.dir.step));
      return OkStatus();
    }
    if (error.code == ErrorCode::kIo) return error;
    // What is missing may come yet; what is wrong stays wrong.
    if (error.code != ErrorCode::kIncomplete) hopeless_.insert(step.path);
    failed_[step.path] = step.dir.step;
    TellOnce(step.path, error);
    return OkStatus();
  }

  void TellOnce(const std::string& about, const Error& error) {
    std::string& told = told_[about];
    std::string text = error.ToString();
    if (told != text) Notice((about.empty() ? std::string() : Shown(about) + " could not be exported: ") + text);
    told = std::move(text);
  }

  /// Of FP8 what was asked for; else what the exported configuration says.
  std::string DTypeOf(const std::string& target) const {
    if (options_.convert.fp8.strategy) return "fp8";
    const auto text = io::ReadSmallFile(storage_, io::JoinPath(target, "config.json"), std::int64_t{64} << 20U);
    const Result<Value> config = text ? ParseJson(*text) : Result<Value>(Value());
    if (!config) return "";
    const std::optional<std::string> name = config->GetString("dtype") ? config->GetString("dtype") : config->GetString("torch_dtype");
    static const std::map<std::string_view, std::string_view> short_names = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
    if (!name) return "";
    const auto known = short_names.find(*name);
    return known == short_names.end() ? *name : std::string(known->second);
  }

  Status CallHook(ExportedStep step) {
    if (!options_.hook) return OkStatus();
    const std::string name = io::BaseName(step.hf_path);
    CROSSDOCK_ASSIGN_OR_RETURN(HookRecord record, HookRecord::Read(storage_, io::ParentPath(step.hf_path)));
    if (record.Has(options_.hook_name, name)) return OkStatus();
    step.dtype = DTypeOf(step.hf_path);
    const Status called = options_.hook(step);
    if (hooks_.stop.stop_requested()) return Stopped();  // it may have been ended half way: it is called again
    if (!called) Notice(fmt::format("the hook of step {} failed: {}", step.step, called.error().ToString()));
    return record.Add(storage_, options_.hook_name, name);
  }

  /// False when it was asked to end.
  bool Sleep() {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, hooks_.stop, options_.interval, [] { return false; });
    return !hooks_.stop.stop_requested();
  }

  Result<Report> MakeReport() const {
    Report report;
    Value json = Value::MakeDict();
    json.Set("command", "watch");
    std::vector<Value> exported;
    for (const ExportedStep& step : exported_) {
      Value one = Value::MakeDict();
      one.Set("step", step.step);
      one.Set("path", step.hf_path);
      one.Set("dtype", step.dtype);
      exported.push_back(std::move(one));
      report.text += fmt::format("step {}: {}\n", step.step, Printable(step.hf_path, 4096));
    }
    std::vector<Value> failed;
    for (const auto& [path, step] : failed_) failed.emplace_back(step);
    report.text += fmt::format("{} exported, {} could not be exported\n", exported_.size(), failed_.size());
    json.Set("exported", Value::MakeList(std::move(exported)));
    json.Set("failed", Value::MakeList(std::move(failed)));
    report.json = ToJson(json) + "\n";
    report.consistent = failed_.empty();
    return report;
  }

  io::Storage& storage_;
  const WatchOptions& options_;
  const Hooks& hooks_;
  std::vector<ExportedStep> exported_;
  std::map<std::string, std::int64_t> failed_;     ///< path -> step
  std::set<std::string> hopeless_;              ///< not tried again
  std::map<std::string, std::string> told_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
};

}  // namespace

Result<Report> Watch(const WatchOptions& options, const Hooks& hooks) {
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  return Watcher(*storage, options, hooks).Run();
}

}  // namespace crossdock
