// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "formats/safetensors/safetensors.h"

namespace crossdock::formats::safetensors {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::size_t kSnapshotsShown = 5;

std::string Join(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) {
    if (i != 0) out += ", ";
    out += "`" + Printable(names[i]) + "`";
  }
  if (names.size() > 8) out += fmt::format(" and {} more", names.size() - 8);
  return out;
}

/// "model-00003-of-00006.safetensors".
struct NumberedName {
  std::string stem;
  std::int64_t number = 0;
  std::int64_t of = 0;
};

std::optional<NumberedName> ParseNumbered(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.rfind("-of-");
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t dash = name.rfind('-', of == 0 ? 0 : of - 1);
  if (dash == std::string_view::npos || dash >= of) return std::nullopt;
  const auto number = [](std::string_view text) -> std::int64_t {
    if (text.empty() || text.size() > 9) return -1;
    std::int64_t v = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return -1;
      v = v * 10 + (c - '0');
    }
    return v;
  };
  NumberedName out{std::string(name.substr(0, dash)), number(name.substr(dash + 1, of - dash - 1)),
                   number(name.substr(of + 4))};
  if (out.number < 0 || out.of <= 0) return std::nullopt;
  return out;
}

/// Mistral's own files, with other tensor names inside, and adapters: never the model beside Hugging Face shards.
bool IsForeign(std::string_view name) {
  return name.starts_with("consolidated") || name.starts_with("adapter_model");
}

Error Ambiguous(const std::string& dir, const std::vector<std::string>& names) {
  return MakeError(ErrorCode::kIncomplete, "several weight files and no index that says which belong together")
      .WithPath(dir)
      .WithFound(Join(names))
      .WithHint("give the path of the one file to read");
}

class Chooser {
 public:
  Chooser(io::Storage& storage, std::string dir) : storage_(storage) { weights_.dir = std::move(dir); }

  Result<Weights> FromDirectory() {
    CROSSDOCK_RETURN_IF_ERROR(ListNames());
    std::string index;
    if (std::find(indexes_.begin(), indexes_.end(), "model.safetensors.index.json") != indexes_.end()) {
      index = "model.safetensors.index.json";
    } else if (indexes_.size() == 1) {
      index = indexes_[0];
    } else if (indexes_.size() > 1) {
      return Ambiguous(weights_.dir, indexes_).WithHint("give the path of the one index to read");
    }
    if (!index.empty()) {
      CROSSDOCK_RETURN_IF_ERROR(UseIndex(index));
    } else {
      CROSSDOCK_RETURN_IF_ERROR(UseNames());
    }
    ReportStrays();
    return std::move(weights_);
  }

  Result<Weights> FromIndex(const std::string& name) {
    CROSSDOCK_RETURN_IF_ERROR(ListNames());
    CROSSDOCK_RETURN_IF_ERROR(UseIndex(name));
    ReportStrays();
    return std::move(weights_);
  }

  Result<Weights> FromFile(const std::string& name) {
    weights_.files = {name};
    return std::move(weights_);
  }

 private:
  Status ListNames() {
    CROSSDOCK_ASSIGN_OR_RETURN(auto entries, storage_.List(weights_.dir));
    for (const io::DirEntry& entry : entries) {
      if (entry.kind == io::FileKind::kDirectory || entry.name.starts_with('.')) continue;
      if (entry.name.ends_with(kIndexSuffix)) indexes_.push_back(entry.name);
      if (entry.name.ends_with(kSuffix)) names_.push_back(entry.name);
      if (entry.name.ends_with(".bin") || entry.name.ends_with(".bin.index.json") || entry.name.ends_with(".pt") ||
          entry.name.ends_with(".pth") || entry.name.ends_with(".gguf") || entry.name.ends_with(".h5") ||
          entry.name.ends_with(".msgpack")) {
        others_.push_back(entry.name);
      }
    }
    std::sort(names_.begin(), names_.end(), NaturalLess);
    return OkStatus();
  }

  Status UseIndex(const std::string& name) {
    weights_.index_path = io::JoinPath(weights_.dir, name);
    CROSSDOCK_RETURN_IF_ERROR(CheckLink(storage_, weights_.index_path));
    CROSSDOCK_ASSIGN_OR_RETURN(std::string json, io::ReadSmallFile(storage_, weights_.index_path, kMaxIndexBytes));
    CROSSDOCK_ASSIGN_OR_RETURN(weights_.index, ParseIndex(std::move(json), weights_.index_path));
    weights_.files = weights_.index->files;
    if (weights_.files.empty()) {
      return MakeError(ErrorCode::kIncomplete, "the index lists no tensor").WithPath(weights_.index_path);
    }
    return OkStatus();
  }

  Status UseNames() {
    std::vector<std::string> candidates;
    for (const std::string& name : names_) {
      if (!IsForeign(name)) candidates.push_back(name);
    }
    if (candidates.empty() && !names_.empty()) candidates = names_;
    if (candidates.empty()) return NoWeights();
    if (candidates.size() == 1 && !ParseNumbered(candidates[0])) {
      weights_.files = std::move(candidates);
      return OkStatus();
    }
    return UseNumbered(std::move(candidates));
  }

  /// A numbered set says itself whether it is whole.
  Status UseNumbered(std::vector<std::string> candidates) {
    const auto first = ParseNumbered(candidates[0]);
    if (!first) return Ambiguous(weights_.dir, candidates);
    std::vector<bool> seen(static_cast<std::size_t>(std::min<std::int64_t>(first->of, 100'000)) + 1, false);
    for (const std::string& name : candidates) {
      const auto number = ParseNumbered(name);
      if (!number || number->stem != first->stem || number->of != first->of) return Ambiguous(weights_.dir, candidates);
      if (static_cast<std::size_t>(number->number) < seen.size()) seen[static_cast<std::size_t>(number->number)] = true;
    }
    std::vector<std::string> missing;
    for (std::size_t i = 1; i < seen.size(); ++i) {
      if (!seen[i]) missing.push_back(fmt::format("{}-{:05}-of-{:05}.safetensors", first->stem, i, first->of));
    }
    if (!missing.empty()) {
      return MakeError(ErrorCode::kIncomplete, fmt::format("{} of {} weight files are missing", missing.size(), first->of))
          .WithPath(weights_.dir)
          .WithExpected(Join(missing))
          .WithFound(fmt::format("{} files", candidates.size()))
          .WithHint("the download is incomplete; fetch the missing files and the index");
    }
    weights_.notices.push_back("no model.safetensors.index.json: the numbered files make a whole set and all are read");
    weights_.files = std::move(candidates);
    return OkStatus();
  }

  Status NoWeights() const {
    if (std::ranges::any_of(others_, [](const std::string& name) { return name.starts_with("pytorch_model-") && name.ends_with(".bin"); })) {
      return MakeError(ErrorCode::kIncomplete, "the numbered weight files have no index, which says what each holds")
          .WithPath(weights_.dir)
          .WithExpected("`pytorch_model.bin.index.json`")
          .WithFound(Join(others_))
          .WithHint("fetch the index too, or save the model again");
    }
    if (!others_.empty()) {
      return MakeError(ErrorCode::kUnsupported, "weights in this format are not read by this version")
          .WithPath(weights_.dir)
          .WithFound(Join(others_))
          .WithHint("save the model as safetensors first");
    }
    return MakeError(ErrorCode::kIncomplete, "no weight files in the directory")
        .WithPath(weights_.dir)
        .WithExpected("`model.safetensors` or `model.safetensors.index.json`")
        .WithHint("the download may be incomplete, or the checkpoint lies in a directory below");
  }

  void ReportStrays() {
    std::vector<std::string> strays;
    for (const std::string& name : names_) {
      if (std::find(weights_.files.begin(), weights_.files.end(), name) != weights_.files.end()) continue;
      if (name == "model.safetensors") {
        weights_.notices.push_back(
            "`model.safetensors` lies beside an index that does not name it: the index is followed here, but "
            "transformers would read that file alone");
      } else {
        strays.push_back(name);
      }
    }
    for (const std::string& name : others_) {
      if (name.starts_with("pytorch_model")) strays.push_back(name);
    }
    for (const std::string& name : indexes_) {
      if (io::JoinPath(weights_.dir, name) != weights_.index_path) strays.push_back(name);
    }
    if (!strays.empty()) weights_.notices.push_back("weight files that are not read: " + Join(strays));
  }

  io::Storage& storage_;
  Weights weights_;
  std::vector<std::string> names_;    // *.safetensors
  std::vector<std::string> indexes_;
  std::vector<std::string> others_;   // weights in other formats
};

}  // namespace

bool IsWeightFile(std::string_view name) {
  constexpr std::array kSuffixes = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".onnx_data",
                                    ".safetensors.index.json", ".bin.index.json", ".h5.index.json", ".msgpack.index.json"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(), [&](std::string_view suffix) { return name.ends_with(suffix); });
}

Status CheckLink(io::Storage& storage, const std::string& path) {
  if (storage.Stat(path)) return OkStatus();
  auto target = storage.ReadLink(path);
  if (!target) return OkStatus();  // no link: whoever opens the file says what is wrong
  return MakeError(ErrorCode::kIncomplete, "a symbolic link leads nowhere")
      .WithPath(path)
      .WithExpected("a file at `" + Printable(*target) + "`")
      .WithHint("the download is incomplete; fetch the file again");
}

Result<Weights> ChooseWeights(io::Storage& storage, const std::string& path) {
  CROSSDOCK_RETURN_IF_ERROR(CheckLink(storage, path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat(path));
  if (info.kind == io::FileKind::kDirectory) return Chooser(storage, path).FromDirectory();
  Chooser chooser(storage, io::ParentPath(path));
  const std::string name = io::BaseName(path);
  return name.ends_with(kIndexSuffix) ? chooser.FromIndex(name) : chooser.FromFile(name);
}

Result<std::string> ResolveHubCache(io::Storage& storage, const std::string& path) {
  const std::string main = io::JoinPath(path, "refs/main");
  const std::string snapshots = io::JoinPath(path, "snapshots");
  const auto info = storage.Stat(snapshots);
  if (!info || info->kind != io::FileKind::kDirectory) return path;
  std::string commit;
  if (io::Exists(storage, main)) {
    CROSSDOCK_ASSIGN_OR_RETURN(commit, io::ReadSmallFile(storage, main, 4096));
    while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ' || commit.back() == '\r')) commit.pop_back();
  } else {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(snapshots));
    if (entries.size() != 1) {
      std::string names;
      for (std::size_t i = 0; i < std::min(entries.size(), kSnapshotsShown); ++i) names += (i == 0 ? ": `" : ", `") + Printable(entries[i].name) + "`";
      return MakeError(ErrorCode::kIncomplete, "a hub cache without refs/main: which snapshot is meant is not told")
          .WithPath(path)
          .WithExpected("refs/main, or one snapshot")
          .WithFound(fmt::format("{} snapshots{}", entries.size(), names))
          .WithHint(entries.empty() ? "the download is incomplete; fetch the model again" : "give the path of one folder under `snapshots`");
    }
    commit = entries[0].name;
  }
  if (!io::CheckRelativePath(commit) || commit.find('/') != std::string::npos) {
    return MakeError(ErrorCode::kUnsafe, "refs/main names no snapshot").WithPath(main).WithFound(Printable(commit));
  }
  std::string snapshot = io::JoinPath(snapshots, commit);
  if (!io::Exists(storage, snapshot)) {
    return MakeError(ErrorCode::kIncomplete, "the snapshot that refs/main names is missing")
        .WithPath(snapshot)
        .WithHint("the download is incomplete; fetch the model again");
  }
  return snapshot;
}

}  // namespace crossdock::formats::safetensors
