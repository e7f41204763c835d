// SPDX-License-Identifier: Apache-2.0
#include "convert/run_steps.h"

#include "formats/orbax/layout.h"

namespace crossdock::convert {
namespace {

using formats::Kind;

std::string PlaceOfSteps(io::Storage& storage, const std::string& run_dir) {
  const std::string below = io::JoinPath(run_dir, "checkpoints");
  const auto info = storage.Stat(below);
  const bool here = io::Exists(storage, io::JoinPath(run_dir, formats::kTracker)) || !formats::StepDirsOf(storage, run_dir).empty();
  return !here && info && info->kind == io::FileKind::kDirectory ? below : run_dir;
}

}  // namespace

RunSteps StepsOfRun(io::Storage& storage, const std::string& run_dir) {
  RunSteps run;
  run.place = PlaceOfSteps(storage, run_dir);
  run.tracker = io::Exists(storage, io::JoinPath(run.place, formats::kTracker));
  for (const formats::StepDir& dir : formats::StepDirsOf(storage, run.place)) {
    const std::string path = io::JoinPath(run.place, dir.name);
    const auto content = formats::ContentOf(storage, path);
    if (!content) continue;
    if (const auto reason = formats::UnfinishedReason(storage, path, *content)) {
      run.unfinished.push_back({path, *reason});
    } else {
      run.complete.push_back({dir, path, content->kind});
    }
  }
  if (const auto entries = storage.List(run.place)) {
    for (const io::DirEntry& entry : *entries) {
      if (formats::orbax::IsTemporary(entry.name)) run.unfinished.push_back({io::JoinPath(run.place, entry.name), "its name says that it was being written"});
    }
  }
  return run;
}

Result<std::vector<RunStep>> AnnouncedSteps(io::Storage& storage, const RunSteps& run) {
  std::optional<StepChoice> last;
  if (run.tracker) {
    CROSSDOCK_ASSIGN_OR_RETURN(last, formats::ReadTracker(storage, io::JoinPath(run.place, formats::kTracker)));
  }
  std::vector<RunStep> out;
  for (const RunStep& step : run.complete) {
    const bool told_by_tracker = step.kind == Kind::kMegatronLegacy || step.kind == Kind::kMegatronZarr;
    if (last ? step.dir.step <= last->number : !told_by_tracker) out.push_back(step);
  }
  return out;
}

}  // namespace crossdock::convert
