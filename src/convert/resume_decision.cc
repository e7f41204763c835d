// SPDX-License-Identifier: Apache-2.0
#include "convert/resume_decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "convert/run_steps.h"
#include "formats/orbax/layout.h"
#include "formats/recognise.h"
#include "formats/registry.h"

namespace crossdock::convert {
namespace {

using formats::Kind;

std::string Quoted(const std::string& path) { return "`" + Printable(path, 4096) + "`"; }

bool IsMegatronRun(Kind kind) { return kind == Kind::kMegatron || kind == Kind::kMegatronLegacy || kind == Kind::kMegatronZarr; }

/// What the run itself holds.
struct Own {
  std::string place;                    ///< where its steps lie
  bool tracker = false;
  std::optional<formats::Found> found;  ///< the checkpoint that the run goes on from
  std::int64_t newest = -1;             ///< the greatest number among its complete steps
  std::optional<Kind> content;          ///< weights or a full state that lie in the directory itself, where there are no steps
};

class Decider {
 public:
  Decider(io::Storage& storage, const ResumeOptions& options) : storage_(storage), options_(options) {}

  Result<ResumeDecision> Run() {
    CROSSDOCK_ASSIGN_OR_RETURN(Own own, FindOwn());
    if (own.found) {
      CROSSDOCK_RETURN_IF_ERROR(Resume(own));
    } else if (options_.step) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("step {} was asked for, and the run has no complete checkpoint", StepWord(*options_.step)))
          .WithPath(options_.run_dir)
          .WithHint("--step chooses among the run's own; of a full state give the path of the step");
    } else {
      CROSSDOCK_RETURN_IF_ERROR(Begin(own));
    }
    return std::move(out_);
  }

 private:
  void Notice(std::string text) { out_.notices.push_back(std::move(text)); }

  Result<Own> FindOwn() {
    Own own;
    const auto info = storage_.Stat(options_.run_dir);
    if (!info && info.error().code == ErrorCode::kIncomplete) {
      Notice("the run's directory does not exist yet");
      return own;
    }
    if (!info) return info.error();
    if (info->kind != io::FileKind::kDirectory) {
      return MakeError(ErrorCode::kUsage, "the run's directory is a file").WithPath(options_.run_dir);
    }
    const std::optional<formats::StepDir> highest = LookAtSteps(&own);
    if (own.tracker || (options_.step && highest)) {
      CROSSDOCK_ASSIGN_OR_RETURN(own.found, Named(own));
    } else if (highest) {
      CROSSDOCK_ASSIGN_OR_RETURN(own.found, formats::Recognise(storage_, own.place, StepChoice{highest->step, highest->release}, std::nullopt));
    } else if (const auto content = formats::ContentOf(storage_, options_.run_dir)) {
      if (content->kind != Kind::kHf && content->kind != Kind::kFullState) {
        return MakeError(ErrorCode::kUsage, fmt::format("this is one `{}` checkpoint, not a run", formats::KindName(content->kind)))
            .WithPath(options_.run_dir)
            .WithHint("give the directory above: " + Quoted(io::ParentPath(options_.run_dir)));
      }
      own.content = content->kind;
    }
    return own;
  }

  /// The highest complete step; what is not complete is listed.
  std::optional<formats::StepDir> LookAtSteps(Own* own) {
    const RunSteps run = StepsOfRun(storage_, options_.run_dir);
    own->place = run.place;
    own->tracker = run.tracker;
    for (const UnfinishedStep& step : run.unfinished) PassOver(step.path, step.reason);
    if (run.complete.empty()) return std::nullopt;
    own->newest = run.complete.back().dir.step;
    return run.complete.back().dir;
  }

  void PassOver(const std::string& path, const std::string& reason) {
    out_.unfinished.push_back(path);
    Notice(fmt::format("{} is incomplete ({}) and is passed over", Quoted(path), reason));
  }

  /// The step of the tracker, or the one asked for: where it is missing or unfinished, nobody else's choice is made.
  Result<formats::Found> Named(const Own& own) {
    auto found = formats::Recognise(storage_, own.place, options_.step, std::nullopt);
    if (found && found->kind == Kind::kMaxText) {
      if (const auto reason = formats::orbax::UnfinishedReason(storage_, found->path)) {
        return MakeError(ErrorCode::kIncomplete, "the checkpoint is incomplete: " + *reason).WithPath(found->path)
            .WithHint("choose another step with --step");
      }
    }
    if (found || options_.step) return found;
    Error error = std::move(found).error();
    const std::string choice = own.newest >= 0 ? fmt::format("the newest complete step is {}: go on from it with --step {}", own.newest, own.newest)
                                               : "the run has no complete step; without its tracker it would begin anew";
    return std::move(error).WithHint(choice);
  }

  /// The tables of a checkpoint: a step whose files are missing or short is found now and not by every rank of the run.
  Result<Catalog> TablesOf(const formats::Found& found) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<formats::CheckpointReader> reader, formats::Open(storage_, found));
    return reader->catalog();
  }

  static bool HoldsOptimizer(const Catalog& catalog) {
    return std::ranges::any_of(catalog.entries, [](const Entry& entry) {
      const std::string& name = entry.name;
      return entry.slot != Slot::kParam || name.starts_with("opt") || name.find("optimizer.") != std::string::npos;
    }) || !catalog.flattened_entries.empty();
  }

  void Choose(ResumeAction action, const formats::Found& found, std::string reason) {
    out_.action = action;
    out_.reason = std::move(reason);
    out_.format = formats::KindName(found.kind);
    out_.path = found.path;
    out_.step = found.step;
    out_.release = found.release;
    for (const std::string& notice : found.notices) Notice(notice);
  }

  Status Resume(const Own& own) {
    const formats::Found& found = *own.found;
    CROSSDOCK_ASSIGN_OR_RETURN(const Catalog catalog, TablesOf(found));
    const bool tracked = own.tracker && !options_.step;
    Choose(ResumeAction::kResume, found,
           tracked ? "the run's tracker names a complete checkpoint: it wins"
                   : options_.step ? "the step asked for is the run's own" : "the run's own latest complete checkpoint wins");
    out_.load_optim = !options_.no_optim;
    out_.load_rng = !options_.no_rng;
    if (options_.full_state_path) Notice("the full state is loaded the first time only: " + Quoted(*options_.full_state_path) + " is not looked at");
    if (options_.hf_path) Notice("weights are loaded the first time only: " + Quoted(*options_.hf_path) + " is not looked at");
    if (options_.consumed_train_samples_override) Notice("the consumed samples are the checkpoint's own: the override counted the first time only");
    if (IsMegatronRun(found.kind)) return MegatronWords(found, own.place, tracked);
    if (found.kind == Kind::kMaxText) return MaxTextGoesOn(own, HoldsOptimizer(catalog));
    return MakeError(ErrorCode::kUnsupported, fmt::format("runs do not keep their checkpoints as `{}`", formats::KindName(found.kind)))
        .WithPath(found.path).WithExpected("megatron, megatron-legacy, megatron-zarr or maxtext")
        .WithHint("give it as --full-state-path");
  }

  /// `tracked`: the tracker beside the step names it, and the run needs no word about it.
  Status MegatronWords(const formats::Found& found, const std::string& root, bool tracked) {
    if (found.release && !tracked) {
      return MakeError(ErrorCode::kUnsupported, "Megatron loads `release` only where the tracker names it").WithPath(found.path)
          .WithHint(fmt::format("write the word release into {}", Quoted(io::JoinPath(root, formats::kTracker))));
    }
    out_.arguments = {"--load", root};
    if (!tracked) {
      out_.arguments.emplace_back("--ckpt-step");
      out_.arguments.push_back(std::to_string(found.step.value_or(0)));
    }
    if (options_.no_optim) out_.arguments.emplace_back("--no-load-optim");
    if (options_.no_rng) out_.arguments.emplace_back("--no-load-rng");
    return OkStatus();
  }

  /// MaxText restores the newest step of its own, whole.
  Status MaxTextGoesOn(const Own& own, bool holds_optimizer) {
    const formats::Found& found = *own.found;
    if (found.step.value_or(0) < own.newest) {
      return MakeError(ErrorCode::kUnsupported, "MaxText goes on from the newest step of its run and from no other").WithPath(found.path)
          .WithExpected(fmt::format("step {}", own.newest)).WithFound(fmt::format("--step {}", found.step.value_or(0)))
          .WithHint("begin a new run with this step as --full-state-path, or move the newer steps away");
    }
    CROSSDOCK_RETURN_IF_ERROR(RefuseSwitches("go on from its own checkpoint"));
    if (!holds_optimizer) Notice("the checkpoint holds no optimizer state: MaxText takes it for a run's and would not find its moments");
    if (!out_.unfinished.empty()) Notice("steps that were not saved to their end are in the way of MaxText where it would choose them: move them away first");
    return OkStatus();
  }

  Status RefuseSwitches(const std::string& deed) const {
    if (!options_.no_optim && !options_.no_rng) return OkStatus();
    return MakeError(ErrorCode::kUnsupported, fmt::format("MaxText has no switch to {} without a part of its state", deed))
        .WithFound(options_.no_optim ? "--no-optim" : "--no-rng")
        .WithHint("`crossdock convert` with the same option makes a checkpoint without it; give that as --full-state-path of a new run");
  }

  /// The run has nothing of its own.
  Status Begin(const Own& own) {
    std::optional<std::string> full = options_.full_state_path, weights = options_.hf_path;
    if (own.content == Kind::kFullState && !full) full = options_.run_dir;
    if (own.content == Kind::kHf && !weights) weights = options_.run_dir;
    if (full) return LoadFullState(*full, weights.has_value());
    if (options_.consumed_train_samples_override) {
      return MakeError(ErrorCode::kUsage, "--consumed-train-samples-override counts where a full state is loaded, and there is none")
          .WithPath(options_.run_dir).WithHint("name it with --full-state-path");
    }
    if (weights) return LoadWeights(*weights);
    out_.action = ResumeAction::kStart;
    out_.reason = "the run has no complete checkpoint, and nothing else is named";
    return OkStatus();
  }

  Status LoadFullState(const std::string& path, bool beside_weights) {
    CROSSDOCK_ASSIGN_OR_RETURN(const formats::Found found, formats::Recognise(storage_, path, std::nullopt, std::nullopt));
    if (found.kind == Kind::kHf) {
      return MakeError(ErrorCode::kUsage, "these are weights alone, not a full state").WithPath(found.path).WithHint("give them as --hf-path");
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const Catalog catalog, TablesOf(found));
    if (!options_.no_optim && !HoldsOptimizer(catalog)) {
      return MakeError(ErrorCode::kIncomplete, "the full state holds no optimizer state").WithPath(found.path)
          .WithHint("--no-optim begins with its parameters alone");
    }
    Choose(ResumeAction::kLoadFullState, found, "the run has no complete checkpoint of its own: the full state is loaded, this first time only");
    out_.load_optim = !options_.no_optim;
    out_.load_rng = !options_.no_rng;
    out_.consumed_train_samples = options_.consumed_train_samples_override;
    if (beside_weights) Notice("the full state holds the parameters too: the Hugging Face weights are not loaded");
    if (IsMegatronRun(found.kind)) {
      const std::string root = found.run_root.empty() ? io::ParentPath(found.path) : found.run_root;
      const bool tracked = path != found.path && io::Exists(storage_, io::JoinPath(root, formats::kTracker));
      return MegatronWords(found, root, tracked);
    }
    if (found.kind == Kind::kMaxText) return MaxTextLoads(found);
    Notice(fmt::format("a trainer loads it once it is converted: `crossdock convert {} {} --to maxtext`, or `--to megatron`", Printable(found.path, 4096),
                       Printable(options_.run_dir, 4096)));
    return OkStatus();
  }

  Status MaxTextLoads(const formats::Found& found) {
    if (!options_.no_optim) CROSSDOCK_RETURN_IF_ERROR(RefuseSwitches("load a full state"));
    if (options_.no_optim) out_.load_rng = false;
    CROSSDOCK_ASSIGN_OR_RETURN(const formats::orbax::ItemPlace item, formats::orbax::FindItem(storage_, found.path));
    out_.arguments.push_back((options_.no_optim ? "load_parameters_path=" : "load_full_state_path=") + item.dir());
    return OkStatus();
  }

  Status LoadWeights(const std::string& path) {
    CROSSDOCK_ASSIGN_OR_RETURN(const formats::Found found, formats::Recognise(storage_, path, std::nullopt, std::nullopt));
    if (found.kind != Kind::kHf) {
      return MakeError(ErrorCode::kUsage, fmt::format("this is a `{}` checkpoint, not Hugging Face weights", formats::KindName(found.kind)))
          .WithPath(found.path).WithHint("give it as --full-state-path");
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const Catalog catalog, TablesOf(found));
    Choose(ResumeAction::kLoadWeights, found, "the run has no complete checkpoint of its own: it begins with these weights at step 0");
    out_.step = 0;
    Notice(fmt::format("trainers that do not read Hugging Face weights load them once they are converted: `crossdock convert {} {} --to megatron`, or `--to maxtext`",
                       Printable(found.path, 4096), Printable(options_.run_dir, 4096)));
    return OkStatus();
  }

  io::Storage& storage_;
  const ResumeOptions& options_;
  ResumeDecision out_;
};

}  // namespace

Result<ResumeDecision> DecideResume(io::Storage& storage, const ResumeOptions& options) { return Decider(storage, options).Run(); }

Result<ResumeDecision> DetectResumeIn(io::Storage& storage, const DetectOptions& options) {
  ResumeDecision none;
  none.reason = "no path is given";
  if (options.load.empty() && options.pretrained.empty()) return none;
  if (options.load.empty() && options.step) {
    return MakeError(ErrorCode::kUsage, fmt::format("step {} is one of the run's own, and no run is given", StepWord(*options.step)));
  }
  std::vector<std::string> notices;
  if (!options.load.empty()) {
    ResumeOptions own;
    own.run_dir = options.load;
    own.step = options.step;
    own.no_optim = options.no_optim;
    own.no_rng = options.no_rng;
    CROSSDOCK_ASSIGN_OR_RETURN(ResumeDecision decision, DecideResume(storage, own));
    if (decision.action != ResumeAction::kStart) {
      if (!options.pretrained.empty()) decision.notices.push_back("the run has something of its own: " + Quoted(options.pretrained) + " is not looked at");
      return decision;
    }
    notices = std::move(decision.notices);
  }
  if (!options.pretrained.empty()) {
    ResumeOptions other;
    other.run_dir = options.pretrained;
    other.no_optim = true;
    other.no_rng = true;
    CROSSDOCK_ASSIGN_OR_RETURN(ResumeDecision decision, DecideResume(storage, other));
    if (decision.action != ResumeAction::kStart) {
      decision.action = ResumeAction::kLoadWeights;
      decision.finetune = true;
      decision.reason = "the run has nothing of its own: it begins with the weights of the pretrained checkpoint";
      decision.notices.insert(decision.notices.begin(), notices.begin(), notices.end());
      return decision;
    }
  }
  const std::string& path = options.pretrained.empty() ? options.load : options.pretrained;
  return MakeError(ErrorCode::kIncomplete, "nothing was found to begin with where a path was given").WithPath(path)
      .WithExpected("a tracker or steps of a run, or Hugging Face weights")
      .WithFound(options.pretrained.empty() || options.load.empty() ? "" : "nothing in " + Quoted(options.load) + " either")
      .WithHint("check the path; a run that means to begin with random weights gives none");
}

}  // namespace crossdock::convert
