// SPDX-License-Identifier: Apache-2.0
/// Reference: torch 2.15, torch/distributed/checkpoint/hf_storage.py and _hf_utils.py. The files say no global shape: it is the
/// largest end of all parts, as torch's own consolidation takes it. A lost last part is told by the model's configuration.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/checked_math.h"
#include "base/digits.h"
#include "formats/placed_reader.h"
#include "formats/safetensors/directory.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/safetensors.h"

namespace crossdock::formats::safetensors {
namespace {

constexpr std::string_view kSharding = "DCP_SHARDING_INFO";

/// Five digits at `at`.
bool FiveDigits(std::string_view name, std::size_t at) {
  const std::string_view digits = name.substr(std::min(at, name.size()), 5);
  return digits.size() == 5 && OnlyDigits(digits);
}

class Joiner {
 public:
  Joiner(io::Storage& storage, const std::string& dir) : storage_(storage) {
    catalog_.format = "safetensors";
    catalog_.root = io::AbsolutePath(dir);
  }

  Result<Catalog> Build() {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto listed, storage_.List(catalog_.root));
    std::vector<std::string> names;
    for (const io::DirEntry& entry : listed) {
      if (IsShardName(entry.name)) names.push_back(entry.name);
    }
    std::ranges::sort(names);
    for (const std::string& name : names) CROSSDOCK_RETURN_IF_ERROR(AddFile(name));
    for (auto& [name, entry] : entries_) CROSSDOCK_RETURN_IF_ERROR(Finish(name, std::move(entry)));
    catalog_.notices.push_back(fmt::format("{} files of single ranks are read as one checkpoint (PyTorch's sharded safetensors)", names.size()));
    CROSSDOCK_RETURN_IF_ERROR(AddConfig());
    CROSSDOCK_ASSIGN_OR_RETURN(catalog_.side_files, ListSideFiles(storage_, catalog_.root, &catalog_.notices));
    return std::move(catalog_);
  }

 private:
  Status AddFile(const std::string& name) {
    const std::string path = io::JoinPath(catalog_.root, name);
    CROSSDOCK_RETURN_IF_ERROR(CheckLink(storage_, path));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.OpenRead(path));
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
    const auto number = static_cast<std::int32_t>(catalog_.files.size());
    catalog_.files.push_back({name, {info.size, info.mtime_ns, info.inode}});
    CROSSDOCK_ASSIGN_OR_RETURN(const Header header, ReadHeader(*file, info.size));
    const auto text = std::ranges::find(header.metadata, kSharding, [](const auto& item) { return std::string_view(item.first); });
    if (text == header.metadata.end()) {
      return MakeError(ErrorCode::kCorrupt, "a file of a sharded checkpoint does not say where its parts belong").WithPath(path)
          .WithExpected(fmt::format("`{}` in the metadata", kSharding)).WithFound("no such entry");
    }
    auto sharding = ParseJson(text->second);
    if (!sharding) return std::move(sharding).error().WithPath(path);
    Places places;
    if (const Value::Dict* dict = sharding->as_dict()) {
      for (const auto& [key, place] : dict->items) places.emplace(*key.as_string(), &place);
    }
    for (const HeaderTensor& tensor : header.tensors) {
      CROSSDOCK_ASSIGN_OR_RETURN(const Dims offsets, OffsetsOf(places, tensor, path));
      CROSSDOCK_RETURN_IF_ERROR(AddPart(tensor, offsets, number, header.data_start, path));
    }
    return OkStatus();
  }

  using Places = std::unordered_map<std::string_view, const Value*>;

  static Result<Dims> OffsetsOf(const Places& places, const HeaderTensor& tensor, const std::string& path) {
    const auto place = places.find(tensor.name);
    const Value* saved = place == places.end() ? nullptr : place->second->Find("saved_offsets");
    const ValueList* list = saved == nullptr ? nullptr : saved->as_sequence();
    const auto malformed = [&](std::string found) {
      return MakeError(ErrorCode::kCorrupt, "a part of a sharded tensor has no usable place").WithPath(path).WithTensor(tensor.name)
          .WithExpected(fmt::format("`saved_offsets` of {} axes, none negative", tensor.shape.size())).WithFound(std::move(found));
    };
    if (list == nullptr) return malformed("none");
    if (list->size() != tensor.shape.size()) return malformed(ToJson(*saved, 0));
    Dims out;
    for (const Value& item : *list) {
      if (item.as_int() == nullptr || *item.as_int() < 0) return malformed(ToJson(*saved, 0));
      out.push_back(*item.as_int());
    }
    return out;
  }

  Status AddPart(const HeaderTensor& tensor, const Dims& offsets, std::int32_t file, std::int64_t data_start, const std::string& path) {
    const auto [at, fresh] = entries_.try_emplace(tensor.name);
    Entry& entry = at->second;
    if (fresh) {
      entry.dtype = tensor.dtype;
      entry.shape = Dims::Filled(tensor.shape.size(), 0);
    }
    if (entry.dtype != tensor.dtype || entry.shape.size() != tensor.shape.size()) {
      return MakeError(ErrorCode::kCorrupt, "parts of a sharded tensor do not belong together").WithPath(path).WithTensor(tensor.name)
          .WithExpected(fmt::format("{} of {} axes", DTypeName(entry.dtype), entry.shape.size()))
          .WithFound(fmt::format("{} {}", DTypeName(tensor.dtype), ToString(tensor.shape)));
    }
    for (std::size_t axis = 0; axis < offsets.size(); ++axis) {
      const auto end = CheckedAdd(offsets[axis], tensor.shape[axis]);
      if (!end) return MakeError(ErrorCode::kCorrupt, "a part of a sharded tensor lies beyond any shape").WithPath(path).WithTensor(tensor.name);
      entry.shape[axis] = std::max(entry.shape[axis], *end);
    }
    Chunk chunk;
    chunk.box = {offsets, tensor.shape};
    chunk.file = file;
    chunk.bytes = {data_start + tensor.bytes.offset, tensor.bytes.length};
    entry.chunks.push_back(std::move(chunk));
    return OkStatus();
  }

  /// Replicated parts are equal boxes, of which the first counts; parts of nothing are dropped.
  Status Finish(const std::string& name, Entry entry) {
    entry.name = name;
    const auto count = ElementCount(entry.shape);
    if (!count) return Error(count.error()).WithPath(catalog_.root).WithTensor(name);
    const auto bytes = ByteSize(entry.dtype, entry.shape);
    if (!bytes) return Error(bytes.error()).WithPath(catalog_.root).WithTensor(name);
    std::ranges::stable_sort(entry.chunks, {}, &Chunk::box);
    const auto same = std::ranges::unique(entry.chunks, {}, &Chunk::box);
    entry.chunks.erase(same.begin(), same.end());
    if (*count > 0) std::erase_if(entry.chunks, [](const Chunk& c) { return c.box.empty(); });
    std::vector<Box> boxes;
    for (const Chunk& chunk : entry.chunks) boxes.push_back(chunk.box);
    const Status cover = CheckCover(entry.shape, boxes);
    if (!cover) {
      return Error(cover.error()).WithPath(catalog_.root).WithTensor(name)
          .WithHint("a rank's file is missing, or files of two saves are mixed");
    }
    catalog_.entries.push_back(std::move(entry));
    return OkStatus();
  }

  Status AddConfig() {
    const std::string config = io::JoinPath(catalog_.root, "config.json");
    if (!io::Exists(storage_, config)) return OkStatus();
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage_, config));
    auto value = ParseJson(text);
    if (!value) return std::move(value).error().WithPath(config);
    if (value->as_dict() == nullptr) return MakeError(ErrorCode::kCorrupt, "the configuration is no JSON object").WithPath(config);
    catalog_.objects["config.json"] = *std::move(value);
    return OkStatus();
  }

  io::Storage& storage_;
  Catalog catalog_;
  std::map<std::string, Entry> entries_;   // sorted, as a catalog's entries are
};

}  // namespace

bool IsShardName(std::string_view name) {
  // shard-NNNNN-model-NNNNN-of-NNNNN.safetensors
  return name.size() == 44 && name.starts_with("shard-") && FiveDigits(name, 6) && name.substr(11, 7) == "-model-" && FiveDigits(name, 18) &&
         name.substr(23, 4) == "-of-" && FiveDigits(name, 27) && name.ends_with(".safetensors");
}

Result<std::unique_ptr<CheckpointReader>> OpenShardedSafetensors(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, Joiner(storage, dir).Build());
  return std::unique_ptr<CheckpointReader>(std::make_unique<PlacedReader>(std::move(catalog), "safetensors files"));
}

}  // namespace crossdock::formats::safetensors
