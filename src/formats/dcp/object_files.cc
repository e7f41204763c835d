// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/object_files.h"

#include "formats/dcp/yaml_value.h"
#include "formats/torch_zip/torch_file.h"

namespace crossdock::formats::dcp {
namespace {

constexpr std::int64_t kLargestItem = 256 << 20;
constexpr int kDeepestFolder = 4;

Status LoadMetadataJson(io::Storage& storage, const std::string& path, Catalog& catalog) {
  if (!io::Exists(storage, path)) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, path, 1 << 20));
  auto parsed = ParseJson(text);
  if (!parsed) return std::move(parsed).error().WithPath(path);
  const std::string backend = parsed->GetString("sharded_backend").value_or("");
  if (backend != "torch_dist") {
    return MakeError(ErrorCode::kUnsupported, "a distributed checkpoint is of another backend")
        .WithPath(path)
        .WithExpected("torch_dist")
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
  const Status loaded = torch_zip::LoadAllTensors(*file, torch, kLargestItem);
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

Status LoadObjectFiles(io::Storage& storage, const std::string& dir, Catalog& catalog) {
  CROSSDOCK_RETURN_IF_ERROR(LoadMetadataJson(storage, io::JoinPath(dir, "metadata.json"), catalog));
  CROSSDOCK_RETURN_IF_ERROR(LoadCommon(storage, io::JoinPath(dir, "common.pt"), catalog));
  CROSSDOCK_RETURN_IF_ERROR(LoadRunConfig(storage, io::JoinPath(dir, "run_config.yaml"), catalog));
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
  CROSSDOCK_RETURN_IF_ERROR(torch_zip::LoadAllTensors(file, torch, kLargestItem));
  return std::move(torch.value);
}

}  // namespace crossdock::formats::dcp
