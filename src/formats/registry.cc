// SPDX-License-Identifier: Apache-2.0
#include "formats/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "formats/dcp/dcp.h"
#include "formats/mp_rank/mp_rank.h"
#include "formats/orbax/layout.h"
#include "formats/orbax/orbax.h"
#include "formats/recognise.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch_bin/torch_bin.h"
#include "formats/zarr/megatron_zarr.h"

namespace crossdock::formats {
namespace {

struct KindRow {
  Kind kind;
  std::string_view name;
};
constexpr std::array kKinds = {
    KindRow{Kind::kHf, "hf"},
    KindRow{Kind::kFullState, "full-state"},
    KindRow{Kind::kMegatron, "megatron"},
    KindRow{Kind::kMegatronLegacy, "megatron-legacy"},
    KindRow{Kind::kMegatronZarr, "megatron-zarr"},
    KindRow{Kind::kDcp, "dcp"},
    KindRow{Kind::kMaxText, "maxtext"},
    KindRow{Kind::kTunix, "tunix"},
};

/// Reinforcement learning with Tunix saves each model that it trains into a run of its own.
constexpr std::array<std::string_view, 2> kRoles = {"actor", "critic"};

constexpr std::string_view kPartial = ".crossdock-partial";  // io/staging.h

/// The staging directory of a run that was interrupted while it wrote into `root`; "" when there is none.
std::string PartialIn(io::Storage& storage, const std::string& root) {
  const auto entries = storage.List(root);
  if (!entries) return {};
  for (const io::DirEntry& entry : *entries) {
    if (entry.name.starts_with('.') && entry.name.ends_with(kPartial)) return io::JoinPath(root, entry.name);
  }
  return {};
}

std::string GoOn(const std::string& partial) {
  return "an interrupted run lies in `" + Printable(partial) + "`: repeat the command that began it with --resume";
}

/// Chooses among what lies at and below a path.
class Recogniser {
 public:
  Recogniser(io::Storage& storage, std::optional<StepChoice> step) : storage_(storage), step_(step) {}

  Result<Found> Directory(const std::string& path) {
    if (io::Exists(storage_, io::JoinPath(path, kTracker))) return Root(path, true);
    const auto content = ContentOf(storage_, path);
    const std::vector<StepDir> steps = StepDirsOf(storage_, path);
    if (!content || (step_ && !steps.empty() && !IsNamed(path))) {
      if (AnyCheckpoint(path, steps)) return Root(path, false);
    }
    if (!content) {
      const std::vector<std::string> roles = RolesIn(path);
      if (roles.size() == 1) return Role(path, roles.front());
      if (roles.size() > 1) return SeveralRoles(path, roles);
      return NothingHere(path);
    }
    Found found;
    found.kind = content->kind;
    found.path = path;
    if (found.kind == Kind::kMegatron || found.kind == Kind::kMegatronLegacy || found.kind == Kind::kMegatronZarr) {
      NameStep(path, &found);
    } else if (found.kind == Kind::kTunix && orbax::IsTunixItem(io::BaseName(path))) {
      found.step = StepOfName(io::BaseName(io::ParentPath(path)));
    } else if (IsOrbax(found.kind)) {
      found.step = StepOfName(io::BaseName(path));
    }
    if (!content->complete) return Unfinished(path, content->incomplete_reason);
    if (step_ && !(found.step == step_->number && found.release == step_->release)) {
      return MakeError(ErrorCode::kUsage, "the path is one checkpoint already, and not of the step asked for")
          .WithPath(path)
          .WithExpected(NameOf(*step_))
          .WithFound(found.step ? NameOf({*found.step, found.release}) : "a path that names no step")
          .WithHint("leave --step out, or give the directory above");
    }
    return found;
  }

 private:
  static std::string NameOf(const StepChoice& step) { return step.release ? "`release`" : fmt::format("step {}", step.number); }

  static Error Unfinished(const std::string& path, const std::string& reason) {
    return MakeError(ErrorCode::kIncomplete, "the checkpoint is incomplete: " + reason)
        .WithPath(path)
        .WithHint("choose another step; this one was not saved to its end");
  }

  /// True for `iter_0000020` and `release`: one step, whatever lies in it.
  static bool IsNamed(const std::string& path) {
    const std::string name = io::BaseName(path);
    return name.starts_with("iter_") || name == "release";
  }

  void NameStep(const std::string& path, Found* found) const {
    const std::string name = io::BaseName(path);
    const std::string parent = io::ParentPath(path);
    if (name == "release") {
      found->release = true;
      found->step = 0;
    } else if (name.starts_with("iter_")) {
      std::int64_t step = 0;
      const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
      if (error == std::errc{} && end == name.data() + name.size()) found->step = step;
    }
    if (found->step && io::Exists(storage_, io::JoinPath(parent, kTracker))) found->run_root = parent;
  }

  std::vector<std::string> RolesIn(const std::string& path) {
    std::vector<std::string> out;
    for (const std::string_view role : kRoles) {
      const std::string root = io::JoinPath(path, role);
      if (AnyCheckpoint(root, StepDirsOf(storage_, root))) out.emplace_back(role);
    }
    return out;
  }

  Result<Found> Role(const std::string& path, const std::string& role) {
    CROSSDOCK_ASSIGN_OR_RETURN(Found found, Directory(io::JoinPath(path, role)));
    found.notices.push_back(fmt::format("the run of `{}` is used, the only model here", role));
    return found;
  }

  static Error SeveralRoles(const std::string& path, const std::vector<std::string>& roles) {
    return MakeError(ErrorCode::kUsage, "the directory holds the runs of several models").WithPath(path)
        .WithFound(fmt::format("`{}`", fmt::join(roles, "`, `")))
        .WithHint(fmt::format("give one of them: `{}`", Printable(io::JoinPath(path, roles.front()), 4096)));
  }

  bool AnyCheckpoint(const std::string& root, const std::vector<StepDir>& steps) {
    return std::any_of(steps.begin(), steps.end(),
                       [&](const StepDir& s) { return ContentOf(storage_, io::JoinPath(root, s.name)).has_value(); });
  }

  Result<Found> Root(const std::string& root, bool has_tracker) {
    const std::vector<StepDir> steps = StepDirsOf(storage_, root);
    Found found;
    found.run_root = root;
    StepDir chosen;
    if (step_) {
      const auto at = std::find_if(steps.begin(), steps.end(), [&](const StepDir& s) { return s.step == step_->number && s.release == step_->release; });
      if (at == steps.end()) return NoSuchStep(root, steps);
      chosen = *at;
    } else if (has_tracker) {
      CROSSDOCK_ASSIGN_OR_RETURN(chosen, FromTracker(root, steps));
      if (chosen.release ? false : steps.back().step > chosen.step) {
        found.notices.push_back(fmt::format("the tracker names step {}; the newer `{}` is not used", chosen.step,
                                            Printable(steps.back().name)));
      }
    } else {
      CROSSDOCK_ASSIGN_OR_RETURN(chosen, HighestComplete(root, steps, &found));
    }
    found.path = io::JoinPath(root, chosen.name);
    found.step = chosen.step;
    found.release = chosen.release;
    const auto content = ContentOf(storage_, found.path);
    if (!content) return Unfinished(found.path, "no checkpoint of a known format lies in it");
    if (!content->complete) return Unfinished(found.path, content->incomplete_reason);
    found.kind = content->kind;
    return found;
  }

  Result<StepDir> FromTracker(const std::string& root, const std::vector<StepDir>& steps) {
    const std::string path = io::JoinPath(root, kTracker);
    CROSSDOCK_ASSIGN_OR_RETURN(const StepChoice wanted, ReadTracker(storage_, path));
    const auto at = std::find_if(steps.begin(), steps.end(), [&](const StepDir& s) {
      return s.release == wanted.release && s.step == wanted.number;
    });
    if (at != steps.end()) return *at;
    return MakeError(ErrorCode::kIncomplete, "the step that the tracker names is missing")
        .WithPath(path)
        .WithExpected(wanted.release ? "release/" : fmt::format("iter_{:07}/", wanted.number))
        .WithFound(ListSteps(steps))
        .WithHint("choose a step with --step");
  }

  Result<StepDir> HighestComplete(const std::string& root, const std::vector<StepDir>& steps, Found* found) {
    for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
      const auto content = ContentOf(storage_, io::JoinPath(root, at->name));
      if (!content) continue;
      if (const auto reason = UnfinishedReason(storage_, io::JoinPath(root, at->name), *content)) {
        found->notices.push_back(fmt::format("`{}` is incomplete ({}) and is passed over", Printable(at->name), *reason));
        continue;
      }
      if (IsOrbax(content->kind)) {
        TellOfOrbaxSteps(root, steps, *at, found);  // Orbax keeps no tracker
      } else {
        found->notices.push_back(fmt::format("no tracker file: the highest complete step, `{}`, is used", Printable(at->name)));
      }
      return *at;
    }
    return MakeError(ErrorCode::kIncomplete, "no complete checkpoint in this run").WithPath(root).WithFound(ListSteps(steps));
  }

  void TellOfOrbaxSteps(const std::string& root, const std::vector<StepDir>& steps, const StepDir& used, Found* found) {
    const auto entries = storage_.List(root);
    if (!entries) return;
    for (const io::DirEntry& entry : *entries) {
      if (!orbax::IsTemporary(entry.name)) continue;
      found->notices.push_back(fmt::format("`{}` was not saved to its end and is passed over", Printable(entry.name)));
    }
    if (steps.size() > 1) found->notices.push_back(fmt::format("the newest complete step, `{}`, is used", Printable(used.name)));
  }

  static std::string ListSteps(const std::vector<StepDir>& steps) {
    if (steps.empty()) return "no step";
    std::string out;
    const std::size_t from = steps.size() > 10 ? steps.size() - 10 : 0;
    for (std::size_t i = from; i < steps.size(); ++i) out += (out.empty() ? "`" : ", `") + Printable(steps[i].name) + "`";
    return from > 0 ? fmt::format("{} steps, the last: {}", steps.size(), out) : out;
  }

  Error NoSuchStep(const std::string& root, const std::vector<StepDir>& steps) const {
    const bool released = std::any_of(steps.begin(), steps.end(), [](const StepDir& s) { return s.release; });
    const std::string hint = released ? "choose one of these with --step; `release` has no number: `--step release`" : "choose one of these with --step";
    return MakeError(ErrorCode::kIncomplete, "the run has no " + NameOf(*step_)).WithPath(root).WithFound(ListSteps(steps)).WithHint(steps.empty() ? "" : hint);
  }

  /// The wrong level: what lies one and two levels below is listed.
  Error NothingHere(const std::string& path) {
    std::vector<std::string> below;
    FindBelow(path, "", 2, &below);
    Error error = MakeError(ErrorCode::kIncomplete, "no checkpoint of a known format here").WithPath(path);
    if (const std::string partial = PartialIn(storage_, path); !partial.empty()) return std::move(error).WithHint(GoOn(partial));
    if (below.empty()) return error;
    std::string list;
    for (const std::string& one : below) list += (list.empty() ? "`" : ", `") + Printable(one) + "`";
    return std::move(error).WithFound("checkpoints below: " + list).WithHint("give the path of one of them");
  }

  void FindBelow(const std::string& dir, const std::string& prefix, int depth, std::vector<std::string>* out) {
    const auto entries = storage_.List(dir);
    if (!entries) return;
    for (const io::DirEntry& entry : *entries) {
      if (entry.kind != io::FileKind::kDirectory || entry.name.starts_with('.') || out->size() >= 10) continue;
      const std::string path = io::JoinPath(dir, entry.name);
      const std::string shown = prefix.empty() ? entry.name : prefix + "/" + entry.name;
      if (io::Exists(storage_, io::JoinPath(path, kTracker)) || ContentOf(storage_, path)) {
        out->push_back(shown);
      } else if (depth > 1) {
        FindBelow(path, shown, depth - 1, out);
      }
    }
  }

  io::Storage& storage_;
  std::optional<StepChoice> step_;
};

Result<Found> RecogniseFile(io::Storage& storage, const std::string& path) {
  Found found;
  found.path = path;
  if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json")) {
    found.kind = safetensors::LooksFullState(storage, path) ? Kind::kFullState : Kind::kHf;
    return found;
  }
  const std::string name = io::BaseName(path);
  if (name == kTracker || name == ".metadata" || name == "metadata.json" || name.ends_with(".distcp") || name == "config.json") {
    return MakeError(ErrorCode::kUsage, "the path is one file of a checkpoint").WithPath(path)
        .WithHint("give the directory: `" + Printable(io::ParentPath(path)) + "`");
  }
  return MakeError(ErrorCode::kUnsupported, "a single file of this kind is not read").WithPath(path)
      .WithExpected("a directory or a .safetensors file");
}

}  // namespace

std::string_view KindName(Kind kind) {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return row.name;
  }
  return "unknown";
}

std::optional<Kind> KindFromName(std::string_view name) {
  for (const KindRow& row : kKinds) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

Result<Found> Recognise(io::Storage& storage, const std::string& path, std::optional<StepChoice> step,
                        std::optional<Kind> from) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string place, safetensors::ResolveHubCache(storage, trimmed));
  auto info = storage.Stat(place);
  if (!info) {
    if (const auto target = storage.ReadLink(place)) {
      return MakeError(ErrorCode::kIncomplete, "a symbolic link leads nowhere").WithPath(place)
          .WithExpected("something at `" + Printable(*target) + "`");
    }
    // An interrupted run into this very path keeps its work beside it.
    const std::string beside = io::JoinPath(io::ParentPath(place), "." + io::BaseName(place) + std::string(kPartial));
    return std::move(info).error().WithHint(io::Exists(storage, beside) ? GoOn(beside) : "check the path of the source");
  }
  CROSSDOCK_ASSIGN_OR_RETURN(Found found, info->kind == io::FileKind::kDirectory ? Recogniser(storage, step).Directory(place)
                                                                                 : RecogniseFile(storage, place));
  if (place != trimmed) found.notices.push_back(fmt::format("hub cache: snapshot `{}` is read", Printable(place)));
  if (from && *from != found.kind) {
    return MakeError(ErrorCode::kUsage, fmt::format("--from says `{}`, but this is a `{}` checkpoint by its content",
                                                    KindName(*from), KindName(found.kind)))
        .WithPath(found.path)
        .WithExpected(std::string(KindName(*from)))
        .WithFound(std::string(KindName(found.kind)))
        .WithHint("leave --from out, or check the path");
  }
  return found;
}

Result<std::unique_ptr<CheckpointReader>> Open(io::Storage& storage, const Found& found) {
  switch (found.kind) {
    case Kind::kHf:
      if (torch_bin::IsTorchBin(storage, found.path)) return torch_bin::OpenTorchBin(storage, found.path);
      return safetensors::OpenSafetensors(storage, found.path);
    case Kind::kFullState:
      return safetensors::OpenSafetensors(storage, found.path);
    case Kind::kMegatron:
      if (!io::Exists(storage, io::JoinPath(found.path, "metadata.json"))) return OpenFsdpDtensor(storage, found.path);
      return OpenDcp(storage, found.path);
    case Kind::kDcp:
      if (io::Exists(storage, io::JoinPath(found.path, ".metadata"))) return OpenPlainDcp(storage, found.path);
      return safetensors::OpenShardedSafetensors(storage, found.path);
    case Kind::kMegatronLegacy:
      if (io::Exists(storage, io::JoinPath(found.path, ".metadata"))) return OpenTorchDcp(storage, found.path);
      return mp_rank::OpenMpRank(storage, found.path);
    case Kind::kMegatronZarr:
      return zarr::OpenMegatronZarr(storage, found.path);
    case Kind::kMaxText:
    case Kind::kTunix:
      return orbax::OpenOrbax(storage, found.path);
  }
  CROSSDOCK_CHECK(false);
}

}  // namespace crossdock::formats
