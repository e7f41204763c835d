// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/object_files.h"

#include <algorithm>

#include "base/sha256.h"
#include "formats/dcp/yaml_value.h"
#include "formats/torch_zip/torch_file.h"

namespace crossdock::formats::dcp {
namespace {

constexpr std::int64_t kLargestObject = 256 << 20;
constexpr std::int64_t kLargestHashed = 64 << 20;
constexpr int kDeepestFolder = 4;

Status LoadMetadataJson(io::Storage& storage, const std::string& path, std::string_view wanted, Catalog& catalog) {
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, path, 1 << 20));
  auto parsed = ParseJson(text);
  if (!parsed) return std::move(parsed).error().WithPath(path);
  const std::string backend = parsed->GetString("sharded_backend").value_or("");
  if (backend != wanted) {
    return MakeError(ErrorCode::kUnsupported, "a distributed checkpoint is of another backend")
        .WithPath(path)
        .WithExpected(std::string(wanted))
        .WithFound(Printable(backend));
  }
  catalog.objects["metadata.json"] = std::move(*parsed);
  return OkStatus();
}

Status LoadCommon(io::Storage& storage, const std::string& path, Catalog& catalog) {
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  CROSSDOCK_ASSIGN_OR_RETURN(torch_zip::TorchFile torch, torch_zip::ReadTorchFile(*file, {0, info.size}));
  const Status loaded = torch_zip::LoadAllTensors(*file, torch, kLargestObject);
  if (!loaded && loaded.error().code != ErrorCode::kUnsupported) return loaded;
  if (!loaded) catalog.notices.push_back("common.pt holds large tensors, which are left out");
  catalog.objects["common"] = std::move(torch.value);
  return OkStatus();
}

Status LoadRunConfig(io::Storage& storage, const std::string& path, Catalog& catalog) {
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, path, 4 << 20));
  auto parsed = ParseYaml(text);
  if (!parsed) return std::move(parsed).error().WithPath(path);
  catalog.objects["run_config.yaml"] = std::move(*parsed);
  return OkStatus();
}

/// Counters of a run of Megatron-Bridge: a dict of tensors without axes.
Status LoadTrainState(io::Storage& storage, const std::string& path, Catalog& catalog) {
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  auto state = LoadItem(*file, {0, info.size});
  if (!state) {
    Error error = std::move(state).error();
    return error.path.empty() ? std::move(error).WithPath(path) : error;
  }
  if (state->as_dict() == nullptr) return MakeError(ErrorCode::kCorrupt, "the counters of a run are no dict").WithPath(path);
  catalog.objects["train_state.pt"] = std::move(*state);
  return OkStatus();
}

/// Whether a file is read whole anyway, so that hashing it costs little.
bool IsHashedWhenRead(const std::string& name, std::int64_t size) { return !name.ends_with(".distcp") && size <= kLargestHashed; }

/// One line of integrity.json; true when its checksum was compared.
Result<bool> CheckFile(io::Storage& storage, const std::string& dir, const std::string& name, const Value& checksum) {
  const std::string list = io::JoinPath(dir, "integrity.json");
  if (const Status plain = io::CheckRelativePath(name); !plain || name.find('/') != std::string::npos) {
    return MakeError(ErrorCode::kUnsafe, "a list of checksums names a file in another directory").WithPath(list).WithFound(Printable(name));
  }
  const std::string* wanted = checksum.as_string();
  if (wanted == nullptr || wanted->size() != 64 || wanted->find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    return MakeError(ErrorCode::kCorrupt, "a checksum is malformed").WithPath(list).WithExpected("64 hex digits for `" + Printable(name) + "`");
  }
  const std::string path = io::JoinPath(dir, name);
  const auto info = storage.Stat(path);
  if (!info && info.error().code == ErrorCode::kIncomplete) {
    return MakeError(ErrorCode::kIncomplete, "a file that integrity.json lists is missing").WithPath(path)
        .WithHint("copy it from where the checkpoint was saved");
  }
  if (!info) return info.error();
  if (!IsHashedWhenRead(name, info->size)) return false;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string content, io::ReadSmallFile(storage, path, kLargestHashed));
  const std::string found = Sha256Hex(content);
  const auto same = [](char a, char b) { return a == (b >= 'A' && b <= 'F' ? b - 'A' + 'a' : b); };
  if (std::ranges::equal(found, *wanted, same)) return true;
  return MakeError(ErrorCode::kCorrupt, "a file does not have the checksum that integrity.json names").WithPath(path)
      .WithExpected("sha256 " + *wanted).WithFound("sha256 " + found)
      .WithHint("copy it again from where the checkpoint was saved; if the change was meant, remove integrity.json");
}

/// The checksums that a run with --verify-integrity leaves. Data files are too large to be hashed each time.
Status CheckIntegrity(io::Storage& storage, const std::string& dir, Catalog& catalog) {
  const std::string path = io::JoinPath(dir, "integrity.json");
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, path, 64 << 20));
  auto json = ParseJson(text);
  if (!json) return std::move(json).error().WithPath(path);
  const Value* files = json->Find("files");
  if (files == nullptr || files->as_dict() == nullptr) return MakeError(ErrorCode::kCorrupt, "a list of checksums has no files").WithPath(path);
  const std::string algorithm = json->GetString("algorithm").value_or("");
  std::int64_t checked = 0;
  if (algorithm == "sha256") {
    for (const auto& [name, checksum] : files->as_dict()->items) {
      CROSSDOCK_ASSIGN_OR_RETURN(const bool compared, CheckFile(storage, dir, *name.as_string(), checksum));
      checked += compared ? 1 : 0;
    }
  }
  const std::string of = std::to_string(checked) + " of " + std::to_string(files->as_dict()->items.size());
  const std::string why = algorithm == "sha256" ? "the data files are not hashed" : "the algorithm `" + Printable(algorithm) + "` is not known";
  catalog.notices.push_back("integrity.json: " + of + " checksums were compared and agree, " + why +
                            "; it is not carried into a target, whose files are others");
  return OkStatus();
}

/// The configuration that travels in ITER/hf/: the dialect compares it with the arguments.
Status LoadHfConfig(io::Storage& storage, const std::string& path, Catalog& catalog) {
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, path, 4 << 20));
  auto parsed = ParseJson(text);
  if (!parsed) return std::move(parsed).error().WithPath(path);
  catalog.objects["hf/config.json"] = std::move(*parsed);
  return OkStatus();
}

Status ListSideFiles(io::Storage& storage, const std::string& dir, const std::string& relative, int depth, Catalog& catalog) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(io::JoinPath(dir, relative)));
  for (const io::DirEntry& entry : entries) {
    const std::string name = relative + "/" + entry.name;
    if (entry.kind == io::FileKind::kDirectory && depth < kDeepestFolder) {
      CROSSDOCK_RETURN_IF_ERROR(ListSideFiles(storage, dir, name, depth + 1, catalog));
    }
    if (entry.kind != io::FileKind::kFile) continue;
    SideFile file;
    file.path = name;
    file.copy_from = io::JoinPath(dir, name);
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat(file.copy_from));
    file.size = info.size;
    catalog.side_files.push_back(std::move(file));
  }
  return OkStatus();
}

}  // namespace

std::optional<std::int64_t> StepOfIteration(const std::string& dir) {
  std::string name = io::BaseName(dir);
  if (name == "release") return 0;
  if (name.substr(0, 5) != "iter_" || name.size() == 5 || name.size() > 20) return std::nullopt;
  std::int64_t step = 0;
  for (char c : name.substr(5)) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return step;
}

Status LoadObjectFiles(io::Storage& storage, const std::string& dir, Catalog& catalog, std::string_view backend) {
  CROSSDOCK_RETURN_IF_ERROR(LoadMetadataJson(storage, io::JoinPath(dir, "metadata.json"), backend, catalog));
  CROSSDOCK_RETURN_IF_ERROR(LoadCommon(storage, io::JoinPath(dir, "common.pt"), catalog));
  CROSSDOCK_RETURN_IF_ERROR(LoadRunConfig(storage, io::JoinPath(dir, "run_config.yaml"), catalog));
  CROSSDOCK_RETURN_IF_ERROR(LoadTrainState(storage, io::JoinPath(dir, "train_state.pt"), catalog));
  CROSSDOCK_RETURN_IF_ERROR(CheckIntegrity(storage, dir, catalog));
  return LoadHfFolder(storage, dir, catalog);
}

Status LoadHfFolder(io::Storage& storage, const std::string& dir, Catalog& catalog) {
  CROSSDOCK_RETURN_IF_ERROR(LoadHfConfig(storage, io::JoinPath(dir, "hf/config.json"), catalog));
  const auto hf = storage.Stat(io::JoinPath(dir, "hf"));
  if (hf && hf->kind == io::FileKind::kDirectory) return ListSideFiles(storage, dir, "hf", 0, catalog);
  return OkStatus();
}

Result<Value> LoadItem(const io::ReadFile& file, ByteRange range) {
  CROSSDOCK_ASSIGN_OR_RETURN(torch_zip::TorchFile torch, torch_zip::ReadTorchFile(file, range));
  CROSSDOCK_RETURN_IF_ERROR(torch_zip::LoadAllTensors(file, torch, kLargestObject));
  return std::move(torch.value);
}

}  // namespace crossdock::formats::dcp
