// SPDX-License-Identifier: Apache-2.0
#include "formats/recognise.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "formats/dcp/torch_dcp.h"
#include "formats/mp_rank/rank_dirs.h"
#include "formats/orbax/layout.h"
#include "formats/safetensors/safetensors.h"

namespace crossdock::formats {
namespace {

bool Has(const std::vector<io::DirEntry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(), [&](const io::DirEntry& e) { return e.name == name; });
}

template <typename Test>
bool Any(const std::vector<io::DirEntry>& entries, Test test) {
  return std::any_of(entries.begin(), entries.end(), test);
}

bool IsDir(const io::DirEntry& entry) { return entry.kind == io::FileKind::kDirectory; }

/// metadata.json of Megatron-Core decides between torch_dist and zarr.
std::optional<Content> MegatronContent(io::Storage& storage, const std::string& dir,
                                       const std::vector<io::DirEntry>& entries) {
  Content content;
  const bool has_data = Any(entries, [](const io::DirEntry& e) { return e.name.ends_with(".distcp"); });
  if (Has(entries, "metadata.json")) {
    const auto text = io::ReadSmallFile(storage, io::JoinPath(dir, "metadata.json"), 1 << 20);
    const auto json = text ? ParseJson(*text) : Result<Value>(Value());
    const auto backend = json ? json->GetString("sharded_backend") : std::nullopt;
    if (backend == "torch_dist" || (!backend && Has(entries, ".metadata"))) {
      content.kind = Kind::kMegatron;
      if (!Has(entries, ".metadata")) {
        content.complete = false;
        content.incomplete_reason = "`.metadata` is missing";
      }
      return content;
    }
    if (backend == "zarr") {
      content.kind = Kind::kMegatronZarr;
      return content;
    }
  }
  const bool common = Has(entries, "common.pt") || Has(entries, "run_config.yaml");
  if (!common && Has(entries, ".metadata") && !Has(entries, "metadata.json")) {  // PyTorch writes `.metadata` last, and the trainer nothing after it
    if (const std::optional<dcp::MegatronDcp> saved = dcp::LooksMegatronDcp(storage, dir)) {
      content.kind = *saved == dcp::MegatronDcp::kTorchDcp ? Kind::kMegatronLegacy : Kind::kMegatron;
      return content;
    }
  }
  const bool megatron_place = io::BaseName(dir).starts_with("iter_") || io::BaseName(dir) == "release";
  if (common || (megatron_place && has_data)) {
    content.kind = Kind::kMegatron;
    content.complete = false;
    content.incomplete_reason = Has(entries, "metadata.json") ? "`metadata.json` does not name `torch_dist` or `zarr` as its sharded_backend" : "`metadata.json` is missing, which the trainer writes last";
    return content;
  }
  if (Has(entries, ".metadata") || has_data) {
    content.kind = Kind::kDcp;
    if (!Has(entries, ".metadata")) {
      content.complete = false;
      content.incomplete_reason = "`.metadata` is missing, which PyTorch writes last";
    }
    return content;
  }
  return std::nullopt;
}

/// A step, one item, or a flat checkpoint. All that is known of a step may be its items.
std::optional<Content> OrbaxContent(io::Storage& storage, const std::string& dir, const std::vector<io::DirEntry>& entries) {
  const bool tunix = Has(entries, "model_params") || orbax::IsTunixItem(io::BaseName(dir));
  const bool orbax = Has(entries, "model_params") || Any(entries, [&](const io::DirEntry& e) {
                       return e.name == "_CHECKPOINT_METADATA" || e.name == "_METADATA" || e.name == "manifest.ocdbt" ||
                              e.name == "orbax.checkpoint" || e.name == "commit_success.txt" ||
                              (IsDir(e) && io::Exists(storage, io::JoinPath(io::JoinPath(dir, e.name), "_METADATA")));
                     });
  if (!orbax) return std::nullopt;
  Content content;
  content.kind = tunix ? Kind::kTunix : Kind::kMaxText;
  if (orbax::IsTemporary(io::BaseName(dir))) {
    content.complete = false;
    content.incomplete_reason = "its name says that it was being written";
  }
  return content;
}

/// DCP's safetensors form: what each rank wrote, without an index. Whole files beside it are a model of their own.
bool IsShardedSafetensors(const std::vector<io::DirEntry>& entries) {
  const bool whole = Has(entries, "model.safetensors") || Has(entries, "model.safetensors.index.json");
  return !whole && Any(entries, [](const io::DirEntry& e) { return safetensors::IsShardName(e.name); });
}

bool IsHfFile(const io::DirEntry& e) {
  if (IsDir(e)) return false;
  return e.name.ends_with(".safetensors") || e.name.ends_with(".safetensors.index.json") || e.name == "config.json" ||
         e.name.starts_with("pytorch_model");
}

}  // namespace

std::optional<std::int64_t> StepOfName(std::string_view name) {
  const std::size_t from = name.rfind('_');
  const std::string_view digits = from == std::string_view::npos ? name : name.substr(from + 1);
  std::int64_t step = 0;
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return step;
}

std::optional<Content> ContentOf(io::Storage& storage, const std::string& dir) {
  const auto entries = storage.List(dir);
  if (!entries) return std::nullopt;
  if (auto megatron = MegatronContent(storage, dir, *entries)) return megatron;
  Content content;
  if (Any(*entries, [](const io::DirEntry& e) { return IsDir(e) && mp_rank::IsRankDir(e.name); })) {
    content.kind = Kind::kMegatronLegacy;
    if (const auto ranks = mp_rank::ListRankDirs(storage, dir); !ranks && ranks.error().code == ErrorCode::kIncomplete) {
      content.complete = false;
      content.incomplete_reason = "`model_optim_rng.pt` is missing in a rank's directory";
    }
    return content;
  }
  if (IsShardedSafetensors(*entries)) {
    content.kind = Kind::kDcp;
    return content;
  }
  if (Any(*entries, IsHfFile)) {
    content.kind = safetensors::LooksFullState(storage, dir) ? Kind::kFullState : Kind::kHf;
    return content;
  }
  return OrbaxContent(storage, dir, *entries);
}

std::optional<std::string> UnfinishedReason(io::Storage& storage, const std::string& dir, const Content& content) {
  if (!content.complete) return content.incomplete_reason;
  return IsOrbax(content.kind) ? orbax::UnfinishedReason(storage, dir) : std::nullopt;
}

std::vector<StepDir> StepDirsOf(io::Storage& storage, const std::string& root) {
  std::vector<StepDir> steps;
  const auto entries = storage.List(root);
  if (!entries) return steps;
  for (const io::DirEntry& entry : *entries) {
    if (!IsDir(entry) || entry.name.starts_with('.')) continue;
    if (entry.name == "release") {
      steps.push_back({entry.name, 0, true});
    } else if (const auto step = StepOfName(entry.name); step && !entry.name.starts_with("mp_rank_")) {
      steps.push_back({entry.name, *step, false});
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const StepDir& a, const StepDir& b) { return std::pair(a.step, !a.release) < std::pair(b.step, !b.release); });
  return steps;
}

Result<StepChoice> ReadTracker(io::Storage& storage, const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(std::string text, io::ReadSmallFile(storage, path, 4096));
  // Around the word only: "3 4" is no iteration 34.
  constexpr const char* kSpace = " \t\r\n";
  text.erase(text.find_last_not_of(kSpace) + 1);
  text.erase(0, text.find_first_not_of(kSpace));
  StepChoice out;
  out.release = text == "release";
  if (out.release) return out;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || out.number < 0) {
    return MakeError(ErrorCode::kCorrupt, "the tracker names no iteration").WithPath(path).WithExpected("a number or `release`").WithFound(Printable(text));
  }
  return out;
}

}  // namespace crossdock::formats
