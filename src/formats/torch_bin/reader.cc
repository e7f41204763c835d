// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "formats/placed_reader.h"
#include "formats/safetensors/index.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch_bin/torch_bin.h"
#include "formats/torch_zip/torch_file.h"
#include "formats/torch_zip/view_chunks.h"

namespace crossdock::formats::torch_bin {
namespace {

constexpr std::string_view kSingle = "pytorch_model.bin";
constexpr std::string_view kIndex = "pytorch_model.bin.index.json";
constexpr std::int64_t kMaxIndexBytes = std::int64_t{256} << 20U;

class Builder {
 public:
  Builder(io::Storage& storage, const std::string& dir) : storage_(storage) {
    catalog_.format = "torch";
    catalog_.root = io::AbsolutePath(dir);
  }

  Result<Catalog> Build() {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> files, ChooseFiles());
    for (const std::string& file : files) CROSSDOCK_RETURN_IF_ERROR(AddFile(file));
    catalog_.SortEntries();
    const auto same = [](const Entry& a, const Entry& b) { return a.name == b.name; };
    const auto twice = std::ranges::adjacent_find(catalog_.entries, same);
    if (twice != catalog_.entries.end()) {
      return MakeError(ErrorCode::kCorrupt, "two files hold the same tensor").WithPath(catalog_.root).WithTensor(twice->name);
    }
    CROSSDOCK_RETURN_IF_ERROR(AddSideFiles());
    return std::move(catalog_);
  }

 private:
  std::string PathOf(std::string_view name) const { return io::JoinPath(catalog_.root, name); }

  Result<std::vector<std::string>> ChooseFiles() {
    if (io::Exists(storage_, PathOf(kSingle))) return std::vector<std::string>{std::string(kSingle)};
    const std::string path = PathOf(kIndex);
    CROSSDOCK_ASSIGN_OR_RETURN(std::string json, io::ReadSmallFile(storage_, path, kMaxIndexBytes));
    CROSSDOCK_ASSIGN_OR_RETURN(const safetensors::Index index, safetensors::ParseIndex(std::move(json), path));
    std::string missing;
    for (const std::string& file : index.files) {
      if (!io::Exists(storage_, PathOf(file))) missing += fmt::format("{}`{}`", missing.empty() ? "" : ", ", Printable(file));
    }
    if (missing.empty()) return index.files;
    return MakeError(ErrorCode::kIncomplete, "weight files of the index are missing")
        .WithPath(path)
        .WithExpected(missing)
        .WithFound("no such file")
        .WithHint("the download or copy is incomplete; fetch the missing files");
  }

  Status AddFile(const std::string& name) {
    const std::string path = PathOf(name);
    CROSSDOCK_ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, storage_.OpenRead(path));
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
    CROSSDOCK_ASSIGN_OR_RETURN(const torch_zip::TorchFile torch, torch_zip::ReadTorchFile(*file, {0, info.size}));
    const auto number = static_cast<std::int32_t>(catalog_.files.size());
    catalog_.files.push_back({name, {info.size, info.mtime_ns, info.inode}});
    const Value::Dict* dict = torch.value.as_dict();
    if (dict == nullptr) {
      return MakeError(ErrorCode::kUnsupported, "the file holds no dict of tensors").WithPath(path);
    }
    for (const auto& [key, value] : dict->items) {
      const std::string shown = key.as_string() != nullptr ? *key.as_string() : ToJson(key, 0);
      const TensorValue* tensor = key.as_string() != nullptr ? value.as_tensor() : nullptr;
      if (tensor == nullptr) {
        return MakeError(ErrorCode::kUnsupported, "the file holds something that is no tensor under a name")
            .WithPath(path)
            .WithTensor(shown)
            .WithHint("save the model's state_dict alone, or as safetensors");
      }
      const auto storage = torch.storages.find(tensor->storage);
      if (storage == torch.storages.end()) {
        return MakeError(ErrorCode::kCorrupt, "a tensor's storage is missing").WithPath(path).WithTensor(shown);
      }
      Result<std::vector<Chunk>> chunks = torch_zip::ChunksOfView(*tensor, storage->second, number);
      if (!chunks) return std::move(chunks).error().WithPath(path).WithTensor(shown);
      catalog_.entries.push_back({shown, Slot::kParam, tensor->dtype, tensor->shape, std::move(chunks).value()});
    }
    return OkStatus();
  }

  Status AddSideFiles() {
    const std::string config = PathOf("config.json");
    if (io::Exists(storage_, config)) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage_, config));
      Result<Value> value = ParseJson(text);
      if (!value) return std::move(value).error().WithPath(config);
      catalog_.objects["config.json"] = std::move(value).value();
    }
    CROSSDOCK_ASSIGN_OR_RETURN(catalog_.side_files,
                               safetensors::ListSideFiles(storage_, catalog_.root, &catalog_.notices));
    return OkStatus();
  }

  io::Storage& storage_;
  Catalog catalog_;
};

}  // namespace

bool IsTorchBin(io::Storage& storage, const std::string& dir) {
  const auto entries = storage.List(dir);
  if (!entries) return false;
  bool found = false;
  for (const io::DirEntry& entry : *entries) {
    if (entry.name.ends_with(".safetensors") || entry.name.ends_with(".safetensors.index.json")) return false;
    found = found || entry.name == kSingle || entry.name == kIndex;
  }
  return found;
}

Result<std::unique_ptr<CheckpointReader>> OpenTorchBin(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, Builder(storage, dir).Build());
  return std::unique_ptr<CheckpointReader>(std::make_unique<PlacedReader>(std::move(catalog), "pytorch_model.bin files"));
}

}  // namespace crossdock::formats::torch_bin
