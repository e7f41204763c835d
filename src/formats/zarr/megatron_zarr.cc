// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/megatron_zarr.h"

#include <algorithm>

#include "base/check.h"
#include "formats/dcp/object_files.h"
#include "formats/zarr/array_metadata.h"
#include "formats/zarr/chunk_grid.h"

namespace crossdock::formats::zarr {
namespace {

constexpr std::string_view kArrayFile = ".zarray";
constexpr std::string_view kLocks = ".sync";
constexpr std::int64_t kLargestArrayFile = 1 << 20;
constexpr std::size_t kMostFiles = std::size_t{1} << 24U;

/// "3", "0.1.2": the name of a chunk file.
bool IsChunkName(std::string_view name) {
  if (name.empty() || name.front() == '.' || name.back() == '.' || name.find("..") != std::string_view::npos) return false;
  return name.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool IsObjectName(std::string_view name) { return name.starts_with("shard_") && name.ends_with(".pt"); }

bool IsSideFolder(std::string_view name) { return name == "hf" || name == "tokenizer" || name == "modelopt_state"; }

Status RefuseLink(bool is_symlink, const std::string& path) {
  if (!is_symlink) return OkStatus();
  return MakeError(ErrorCode::kUnsafe, "a symbolic link stands where a checkpoint has a file or directory of its own")
      .WithPath(path)
      .WithHint("copy the checkpoint with its links resolved (cp -rL)");
}

/// Makes the catalog of one iteration, a directory at a time.
class Builder {
 public:
  Builder(io::Storage& storage, std::string dir) : storage_(storage) {
    catalog_.format = "zarr";
    catalog_.root = std::move(dir);
    catalog_.step = dcp::StepOfIteration(catalog_.root);
  }

  Result<Catalog> Build() {
    CROSSDOCK_RETURN_IF_ERROR(dcp::LoadObjectFiles(storage_, catalog_.root, catalog_, "zarr"));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<io::DirEntry> all, storage_.List(catalog_.root));
    for (const io::DirEntry& entry : all) {
      if (entry.kind != io::FileKind::kDirectory || IsSideFolder(entry.name)) continue;
      CROSSDOCK_RETURN_IF_ERROR(RefuseLink(entry.is_symlink, io::JoinPath(catalog_.root, entry.name)));
      if (entry.name.ends_with(kLocks)) {
        CROSSDOCK_RETURN_IF_ERROR(CheckLocks(entry.name, all));
      } else {
        CROSSDOCK_RETURN_IF_ERROR(AddDirectory(entry.name));
      }
    }
    catalog_.SortEntries();
    std::ranges::stable_sort(catalog_.object_refs, {}, &ObjectRef::name);
    return std::move(catalog_);
  }

 private:
  [[nodiscard]] std::string PathOf(std::string_view name) const { return io::JoinPath(catalog_.root, name); }

  /// Locks alone tell of an array that was there when it was written.
  Status CheckLocks(std::string_view name, const std::vector<io::DirEntry>& all) const {
    const std::string_view key = name.substr(0, name.size() - kLocks.size());
    const auto array = std::ranges::lower_bound(all, key, {}, [](const io::DirEntry& e) { return std::string_view(e.name); });
    if (array != all.end() && array->name == key && array->kind == io::FileKind::kDirectory) return OkStatus();
    return MakeError(ErrorCode::kIncomplete, "the directory of a tensor is missing, only its lock files are there")
        .WithPath(PathOf(key)).WithTensor(std::string(key))
        .WithHint("copy it from where the checkpoint was saved");
  }

  Status AddDirectory(const std::string& key) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<io::DirEntry> files, storage_.List(PathOf(key)));
    bool array = false;
    std::size_t chunks = 0;
    std::size_t objects = 0;
    for (const io::DirEntry& file : files) {
      array = array || file.name == kArrayFile;
      if (IsChunkName(file.name)) ++chunks;
      if (!IsObjectName(file.name)) continue;
      ++objects;
      CROSSDOCK_RETURN_IF_ERROR(AddObject(key, file));
    }
    if (array) return AddArray(key, files, chunks);
    if (chunks != 0) {
      return MakeError(ErrorCode::kIncomplete, "the directory of a tensor has chunks but no metadata")
          .WithPath(PathOf(key)).WithTensor(key).WithExpected("a file `.zarray`")
          .WithHint("copy it from where the checkpoint was saved");
    }
    if (objects == 0) catalog_.notices.push_back("the directory `" + Printable(key) + "` holds neither an array nor objects and is passed over");
    return OkStatus();
  }

  Status AddArray(const std::string& key, const std::vector<io::DirEntry>& files, std::size_t chunk_files) {
    auto array = ReadArrayFile(key);
    if (!array) return std::move(array).error().WithPath(PathOf(key + "/.zarray")).WithTensor(key);
    if (array->separator == '/' && array->shape.size() > 1) {
      return MakeError(ErrorCode::kUnsupported, "the chunks of a tensor lie in nested directories, which Megatron-Core never wrote")
          .WithPath(PathOf(key)).WithTensor(key)
          .WithExpected("dimension_separator \".\"").WithFound("dimension_separator \"/\"");
    }
    if (!array->plain()) {
      return MakeError(ErrorCode::kUnsupported, "the chunks of a tensor are encoded, which Megatron-Core never did")
          .WithPath(PathOf(key)).WithTensor(key)
          .WithExpected("compressor null, and no int4").WithFound(array->nibbles ? "dtype int4" : "a compressor");
    }
    const std::size_t before = catalog_.files.size();
    const FindObject find = [&](const std::string& name) { return FindFile(key + "/" + name); };
    auto chunks = PlaceChunks(*array, find);
    if (!chunks) {
      Error error = std::move(chunks).error();
      if (error.path.empty()) error.path = PathOf(key);
      return std::move(error).WithTensor(key);
    }
    if (chunk_files > catalog_.files.size() - before) return Stray(key, files, before);
    catalog_.entries.push_back({key, Slot::kParam, array->dtype, array->shape, *std::move(chunks)});
    return OkStatus();
  }

  Result<ArrayMetadata> ReadArrayFile(const std::string& key) {
    const std::string path = PathOf(key + "/.zarray");
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage_.Stat(path));
    CROSSDOCK_RETURN_IF_ERROR(RefuseLink(info.is_symlink, path));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage_, path, kLargestArrayFile));
    return ParseZarray(text);
  }

  /// A chunk or object file as a new file of the catalog.
  Result<std::optional<Stored>> FindFile(const std::string& relative) {
    const auto info = storage_.Stat(PathOf(relative));
    if (!info && info.error().code == ErrorCode::kIncomplete) return std::optional<Stored>();
    if (!info) return info.error();
    CROSSDOCK_RETURN_IF_ERROR(RefuseLink(info->is_symlink, PathOf(relative)));
    if (info->kind != io::FileKind::kFile) {
      return MakeError(ErrorCode::kCorrupt, "something stands in place of a file of a checkpoint").WithPath(PathOf(relative)).WithExpected("a file");
    }
    if (catalog_.files.size() >= kMostFiles) {
      return MakeError(ErrorCode::kUnsupported, "a checkpoint has too many files").WithExpected("at most " + std::to_string(kMostFiles));
    }
    catalog_.files.push_back({relative, {info->size, info->mtime_ns, info->inode}});
    return std::optional<Stored>({static_cast<std::int32_t>(catalog_.files.size()) - 1, {0, info->size}});
  }

  /// More chunk files than the grid has places: the metadata is of another array.
  [[nodiscard]] Error Stray(const std::string& key, const std::vector<io::DirEntry>& files, std::size_t before) const {
    std::vector<std::string_view> known;
    for (std::size_t i = before; i < catalog_.files.size(); ++i) known.push_back(std::string_view(catalog_.files[i].path).substr(key.size() + 1));
    std::ranges::sort(known);
    const auto stray = std::ranges::find_if(files, [&](const io::DirEntry& f) { return IsChunkName(f.name) && !std::ranges::binary_search(known, f.name); });
    CROSSDOCK_CHECK(stray != files.end());
    return MakeError(ErrorCode::kCorrupt, "a tensor has a chunk that its metadata has no place for")
        .WithPath(PathOf(key)).WithTensor(key)
        .WithExpected(std::to_string(known.size()) + " chunks").WithFound("also `" + Printable(stray->name) + "`");
  }

  Status AddObject(const std::string& key, const io::DirEntry& file) {
    const std::string relative = key + "/" + file.name;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<Stored> stored, FindFile(relative));
    if (!stored) return OkStatus();  // removed since it was listed
    std::string name = relative.substr(0, relative.size() - 3);
    catalog_.object_refs.push_back({std::move(name), stored->file, stored->bytes});
    return OkStatus();
  }

  io::Storage& storage_;
  Catalog catalog_;
};

class MegatronZarrReader final : public CheckpointReader {
 public:
  MegatronZarrReader(io::Storage& storage, Catalog catalog) : storage_(storage), catalog_(std::move(catalog)) {}
  [[nodiscard]] const Catalog& catalog() const override { return catalog_; }
  [[nodiscard]] Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    return catalog_.entries.at(static_cast<std::size_t>(entry)).chunks.at(static_cast<std::size_t>(chunk)).bytes;
  }
  /// As torch_dist gives it: a list of the one object, which the zarr format saved without the list.
  [[nodiscard]] Result<Value> LoadObject(const ObjectRef& ref) const override {
    const std::string path = io::JoinPath(catalog_.root, catalog_.files.at(static_cast<std::size_t>(ref.file)).path);
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.OpenRead(path));
    auto value = dcp::LoadItem(*file, ref.bytes);
    if (!value) {
      Error error = std::move(value).error();
      if (error.path.empty()) error.path = path;
      return std::move(error).WithTensor(ref.name);
    }
    return Value::MakeList({*std::move(value)});
  }

 private:
  io::Storage& storage_;
  Catalog catalog_;
};

}  // namespace

Result<std::unique_ptr<CheckpointReader>> OpenMegatronZarr(io::Storage& storage, const std::string& dir) {
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, Builder(storage, dir).Build());
  return std::unique_ptr<CheckpointReader>(std::make_unique<MegatronZarrReader>(storage, std::move(catalog)));
}

}  // namespace crossdock::formats::zarr
