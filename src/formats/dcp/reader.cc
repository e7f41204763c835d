// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/check.h"
#include "base/checked_math.h"
#include "formats/dcp/dcp.h"
#include "formats/dcp/metadata.h"
#include "formats/dcp/object_files.h"
#include "formats/dcp/plain_state.h"
#include "formats/dcp/torch_dcp.h"
#include "formats/torch_zip/blob.h"

namespace crossdock::formats {
namespace {

constexpr std::string_view kCommonState = "common_state/shard_0_1";
constexpr std::size_t kMostOpenFiles = 64;
constexpr std::size_t kMostNamed = 8;   // files or keys in one message

/// "a, b, c and 4 more".
std::string Join(const std::vector<std::string>& items, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) out += (i == 0 ? "" : ", ") + items[i];
  if (items.size() > most) out += " and " + std::to_string(items.size() - most) + " more";
  return out;
}

/// Makes the catalog of a parsed metadata, step by step; each step refuses what it finds wrong.
class CatalogBuilder {
 public:
  CatalogBuilder(io::Storage& storage, std::string dir, dcp::Metadata metadata)
      : storage_(storage), dir_(std::move(dir)), metadata_(std::move(metadata)) {}

  Result<Catalog> Build() {
    catalog_.format = "dcp";
    catalog_.root = dir_;
    catalog_.step = dcp::StepOfIteration(dir_);
    CROSSDOCK_RETURN_IF_ERROR(FindFiles());
    CROSSDOCK_RETURN_IF_ERROR(CheckPlaces());
    CROSSDOCK_RETURN_IF_ERROR(AddEntries());
    AddObjects();
    return std::move(catalog_);
  }

 private:
  /// All files must be there before any work; what is missing is told with what it holds.
  Status FindFiles() {
    std::vector<std::string> missing;
    std::vector<bool> gone(metadata_.files.size(), false);
    for (std::size_t i = 0; i < metadata_.files.size(); ++i) {
      const auto info = storage_.Stat(io::JoinPath(dir_, metadata_.files[i]));
      if (!info && info.error().code != ErrorCode::kIncomplete) return info.error();
      FileRef& file = catalog_.files.emplace_back();
      file.path = metadata_.files[i];
      if (info) {
        file.identity = {info->size, info->mtime_ns, info->inode};
      } else {
        gone[i] = true;
        missing.push_back(Printable(metadata_.files[i]));
      }
    }
    if (missing.empty()) return OkStatus();
    std::sort(missing.begin(), missing.end());
    std::vector<std::string> needs;
    for (const dcp::Place& place : metadata_.places) {
      if (gone[place.file]) needs.push_back(Describe(place));
    }
    return MakeError(ErrorCode::kIncomplete, "a checkpoint lacks data files: " + Join(missing, kMostNamed))
        .WithPath(dir_)
        .WithExpected(Join(needs, kMostNamed))
        .WithHint("copy the missing files from where the checkpoint was saved");
  }

  /// "`key` [0:2, 0:4] (bytes 10 to 20 of __0_0.distcp)", the box's end where the chunk is known.
  [[nodiscard]] std::string Describe(const dcp::Place& place) const {
    std::string out = "`" + Printable(metadata_.names[place.name]) + "`";
    if (place.offsets) out += " at " + ToString(metadata_.OffsetsOf(place));
    return out + " (bytes " + std::to_string(place.bytes.offset) + " to " + std::to_string(place.bytes.end()) + " of " +
           Printable(metadata_.files[place.file]) + ")";
  }

  Status CheckPlaces() const {
    for (const dcp::Place& place : metadata_.places) {
      const FileRef& file = catalog_.files[place.file];
      if (place.bytes.end() <= file.identity.size) continue;
      return MakeError(ErrorCode::kCorrupt, "a data file of a checkpoint is shorter than its metadata says")
          .WithPath(io::JoinPath(dir_, file.path))
          .WithTensor(metadata_.names[place.name])
          .WithExpected("at least " + std::to_string(place.bytes.end()) + " bytes")
          .WithFound(std::to_string(file.identity.size));
    }
    return OkStatus();
  }

  Status AddEntries() {
    std::sort(metadata_.tensors.begin(), metadata_.tensors.end(),
              [](const dcp::StoredTensor& a, const dcp::StoredTensor& b) { return a.name < b.name; });
    std::sort(metadata_.flattened.begin(), metadata_.flattened.end());
    IndexPlaces();
    for (dcp::StoredTensor& tensor : metadata_.tensors) {
      if (!catalog_.entries.empty() && catalog_.entries.back().name == tensor.name) {
        return MakeError(ErrorCode::kCorrupt, "a checkpoint names a tensor twice").WithPath(dir_).WithTensor(tensor.name);
      }
      if (std::binary_search(metadata_.flattened.begin(), metadata_.flattened.end(), tensor.name)) {
        catalog_.flattened_entries.push_back(tensor.name);
      }
      CROSSDOCK_RETURN_IF_ERROR(AddEntry(std::move(tensor)));
    }
    return OkStatus();
  }

  Status AddEntry(dcp::StoredTensor tensor) {
    if (!tensor.dtype) {
      return MakeError(ErrorCode::kUnsupported, "a tensor is of a type that cannot be carried")
          .WithPath(dir_).WithTensor(tensor.name).WithFound(Printable(tensor.torch_dtype));
    }
    Entry entry{.name = std::move(tensor.name), .dtype = *tensor.dtype, .shape = tensor.shape, .chunks = {}};
    entry.chunks.reserve(tensor.boxes.size());
    for (const std::uint64_t box : tensor.boxes) entry.chunks.push_back({metadata_.BoxAt(box), -1, {}, ChunkEncoding::kTorchBlob, 0});
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::int64_t bytes, ByteSize(entry.dtype, entry.shape));
    TidyChunks(entry);
    std::vector<Box> boxes;
    boxes.reserve(entry.chunks.size());
    for (const Chunk& chunk : entry.chunks) boxes.push_back(chunk.box);
    const Status cover = CheckCover(entry.shape, boxes);
    if (!cover) return Error(cover.error()).WithPath(dir_).WithTensor(entry.name);
    for (Chunk& chunk : entry.chunks) CROSSDOCK_RETURN_IF_ERROR(PlaceChunk(entry.name, chunk));
    catalog_.entries.push_back(std::move(entry));
    return OkStatus();
  }

  /// Sorts by box, drops repeats (replicated saves) and empty chunks (ranks that held nothing).
  static void TidyChunks(Entry& entry) {
    const auto before = [](const Chunk& a, const Chunk& b) { return a.box < b.box; };
    const auto same = [](const Chunk& a, const Chunk& b) { return a.box == b.box; };
    std::stable_sort(entry.chunks.begin(), entry.chunks.end(), before);
    entry.chunks.erase(std::unique(entry.chunks.begin(), entry.chunks.end(), same), entry.chunks.end());
    if (CheckedCount(entry.shape) > 0) std::erase_if(entry.chunks, [](const Chunk& c) { return c.box.empty(); });
  }

  /// Places by (name, offsets), the file's order among equals.
  void IndexPlaces() {
    by_key_.reserve(metadata_.places.size());
    for (std::uint32_t i = 0; i < metadata_.places.size(); ++i) {
      if (metadata_.places[i].offsets) by_key_.push_back(i);
    }
    std::stable_sort(by_key_.begin(), by_key_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return Compare(metadata_.places[a], metadata_.names[metadata_.places[b].name],
                     metadata_.OffsetsOf(metadata_.places[b])) < 0;
    });
  }

  [[nodiscard]] int Compare(const dcp::Place& place, const std::string& name, const Dims& offsets) const {
    if (const int order = metadata_.names[place.name].compare(name); order != 0) return order;
    const auto order = metadata_.OffsetsOf(place) <=> offsets;
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }

  Status PlaceChunk(const std::string& name, Chunk& chunk) const {
    const auto at = std::lower_bound(by_key_.begin(), by_key_.end(), 0, [&](std::uint32_t i, int) {
      return Compare(metadata_.places[i], name, chunk.box.offsets) < 0;
    });
    if (at == by_key_.end() || Compare(metadata_.places[*at], name, chunk.box.offsets) != 0) {
      return MakeError(ErrorCode::kCorrupt, "the metadata of a checkpoint does not say where a chunk lies")
          .WithPath(dir_).WithTensor(name).WithFound("chunk " + ToString(chunk.box));
    }
    chunk.file = static_cast<std::int32_t>(metadata_.places[*at].file);
    chunk.bytes = metadata_.places[*at].bytes;
    return OkStatus();
  }

  void AddObjects() {
    std::sort(metadata_.objects.begin(), metadata_.objects.end());
    for (const dcp::Place& place : metadata_.places) {
      const std::string& name = metadata_.names[place.name];
      if (place.offsets || !std::binary_search(metadata_.objects.begin(), metadata_.objects.end(), name)) continue;
      catalog_.object_refs.push_back({name, static_cast<std::int32_t>(place.file), place.bytes});
    }
    std::stable_sort(catalog_.object_refs.begin(), catalog_.object_refs.end(),
                     [](const ObjectRef& a, const ObjectRef& b) { return a.name < b.name; });
  }

  io::Storage& storage_;
  std::string dir_;
  dcp::Metadata metadata_;
  Catalog catalog_;
  std::vector<std::uint32_t> by_key_;
};

class DcpReader : public CheckpointReader {
 public:
  DcpReader(io::Storage& storage, std::string dir, Catalog catalog)
      : storage_(storage), dir_(std::move(dir)), catalog_(std::move(catalog)) {
    for (const Entry& entry : catalog_.entries) {
      first_chunk_.push_back(located_.size());
      located_.resize(located_.size() + entry.chunks.size());
    }
  }

  [[nodiscard]] const Catalog& catalog() const override { return catalog_; }

  [[nodiscard]] Result<ByteRange> Locate(std::int32_t entry_index, std::int32_t chunk_index) const override {
    const Entry& entry = catalog_.entries.at(static_cast<std::size_t>(entry_index));
    const Chunk& chunk = entry.chunks.at(static_cast<std::size_t>(chunk_index));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t size, ByteSize(entry.dtype, chunk.box.sizes));
    std::atomic<std::int64_t>& known =
        located_[first_chunk_[static_cast<std::size_t>(entry_index)] + static_cast<std::size_t>(chunk_index)].end_or_zero;
    if (const std::int64_t end = known.load(std::memory_order_relaxed); end != 0) return ByteRange{end - size, size};
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, Open(chunk.file));
    auto range = torch_zip::LocateBlobData(*file, chunk.bytes, entry.dtype, chunk.box.sizes);
    if (!range) {
      Error error = std::move(range).error();
      return std::move(error).WithTensor(entry.name);
    }
    known.store(range->end(), std::memory_order_relaxed);
    return *range;
  }

  [[nodiscard]] Result<Value> LoadObject(const ObjectRef& ref) const override {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, Open(ref.file));
    auto value = dcp::LoadItem(*file, ref.bytes);
    if (!value) {
      Error error = std::move(value).error();
      if (error.path.empty()) error.path = file->path();
      return std::move(error).WithTensor(ref.name);
    }
    return value;
  }

 private:
  /// The end of a chunk's data once it was found; 0 before. Two threads may both look and store the same.
  struct Located {
    Located() = default;
    Located(Located&& other) noexcept : end_or_zero(other.end_or_zero.load()) {}
    std::atomic<std::int64_t> end_or_zero = 0;
  };

  /// Files stay open, but not thousands of them.
  Result<std::shared_ptr<const io::ReadFile>> Open(std::int32_t index) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = open_.find(index); found != open_.end()) return found->second;
    CROSSDOCK_ASSIGN_OR_RETURN(auto file, storage_.OpenRead(io::JoinPath(dir_, catalog_.files.at(static_cast<std::size_t>(index)).path)));
    if (open_.size() >= kMostOpenFiles) open_.clear();  // those in use live on in their users' hands
    std::shared_ptr<const io::ReadFile> shared = std::move(file);
    open_[index] = shared;
    return shared;
  }

  io::Storage& storage_;
  std::string dir_;
  Catalog catalog_;
  std::vector<std::size_t> first_chunk_;
  mutable std::vector<Located> located_;
  mutable std::mutex mutex_;
  mutable std::map<std::int32_t, std::shared_ptr<const io::ReadFile>> open_;
};

/// `order`: the keys of the tensors as the file has them, where somebody asks.
Result<Catalog> ReadCatalog(io::Storage& storage, const std::string& dir, std::vector<std::string>* order = nullptr) {
  const std::string path = io::JoinPath(dir, ".metadata");
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  pickle::ByteSource source(*file, 0, info.size);
  auto metadata = dcp::ParseMetadata(source);
  if (!metadata) {
    Error error = std::move(metadata).error();
    return std::move(error).WithPath(path);
  }
  for (std::size_t i = 0; order != nullptr && i < metadata->tensors.size(); ++i) order->push_back(metadata->tensors[i].name);
  return CatalogBuilder(storage, dir, std::move(*metadata)).Build();
}

/// The common state of Megatron-Core 0.19 and newer: an item that is a list of one dict.
Status LoadCommonState(io::Storage& storage, const std::string& dir, Catalog& catalog) {
  const auto at = std::find_if(catalog.object_refs.begin(), catalog.object_refs.end(),
                               [](const ObjectRef& ref) { return ref.name == kCommonState; });
  if (at == catalog.object_refs.end()) return OkStatus();
  const ObjectRef ref = *at;
  catalog.object_refs.erase(at);
  if (catalog.objects.contains("common")) return OkStatus();  // common.pt wins, as in Megatron-Core
  const std::string path = io::JoinPath(dir, catalog.files.at(static_cast<std::size_t>(ref.file)).path);
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
  const auto loaded = dcp::LoadItem(*file, ref.bytes);
  if (!loaded) return Error(loaded.error()).WithPath(path).WithTensor(ref.name);
  const Value& value = *loaded;
  const ValueList* items = value.as_sequence();
  const bool wrapped = items != nullptr && items->size() == 1 && items->front().as_dict() != nullptr;
  if (!wrapped && value.as_dict() == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "the common state of a checkpoint is no dict")
        .WithPath(catalog.root).WithTensor(ref.name);
  }
  catalog.objects["common"] = wrapped ? items->front() : value;
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<CheckpointReader>> OpenDcp(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(storage, dir));
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadObjectFiles(storage, dir, catalog));
  CROSSDOCK_RETURN_IF_ERROR(LoadCommonState(storage, dir, catalog));
  return std::unique_ptr<CheckpointReader>(std::make_unique<DcpReader>(storage, dir, std::move(catalog)));
}

Result<std::unique_ptr<CheckpointReader>> OpenPlainDcp(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(storage, dir));
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadPlainState(storage, dir, catalog));
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadModelFiles(storage, dir, catalog));
  return std::unique_ptr<CheckpointReader>(std::make_unique<DcpReader>(storage, dir, std::move(catalog)));
}

Result<std::unique_ptr<CheckpointReader>> OpenTorchDcp(io::Storage& storage, const std::string& dir) {
  std::vector<std::string> order;
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(storage, dir, &order));
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadPlainState(storage, dir, catalog));
  const Status made = dcp::MakeRankFile(order, catalog);
  if (!made) return Error(made.error()).WithPath(dir);
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadHfFolder(storage, dir, catalog));
  return std::unique_ptr<CheckpointReader>(std::make_unique<DcpReader>(storage, dir, std::move(catalog)));
}

Result<std::unique_ptr<CheckpointReader>> OpenFsdpDtensor(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, ReadCatalog(storage, dir));
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadPlainState(storage, dir, catalog));
  catalog.object_refs.clear();  // those that can be read are among the items
  catalog.objects["fsdp_dtensor"] = Value(true);
  CROSSDOCK_RETURN_IF_ERROR(dcp::LoadHfFolder(storage, dir, catalog));
  return std::unique_ptr<CheckpointReader>(std::make_unique<DcpReader>(storage, dir, std::move(catalog)));
}

}  // namespace crossdock::formats
