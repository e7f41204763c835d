// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/array_store.h"

#include <algorithm>

#include "base/checked_math.h"
#include "formats/ocdbt/database.h"
#include "formats/zarr/zarr_json.h"

namespace crossdock::formats::orbax {
namespace {

constexpr std::int64_t kLargestMetadata = 1 << 20;
constexpr std::size_t kMostFiles = std::size_t{1} << 24U;

std::string_view MetadataName(const StoreForm& form) { return form.zarr3 ? "zarr.json" : ".zarray"; }

Result<zarr::ArrayMetadata> Parse(const StoreForm& form, std::string_view text) {
  return form.zarr3 ? zarr::ParseZarrJson(text) : zarr::ParseZarray(text);
}

/// Errors within an array name it.
Error Of(const std::string& name, Error error) {
  if (error.tensor.empty()) error.tensor = name;
  return error;
}

/// Collects the keys of one array until the next array's come.
class OcdbtArrays {
 public:
  OcdbtArrays(StoreFiles& files, const std::set<std::string>& names, StoreForm form, const TakeArray& take, std::set<std::string>* others)
      : files_(files), names_(names), form_(form), take_(take), others_(others) {}

  Status Run() {
    CROSSDOCK_ASSIGN_OR_RETURN(ocdbt::Database database, ocdbt::Database::Open(files_.storage(), files_.dir()));
    CROSSDOCK_RETURN_IF_ERROR(database.Visit([&](const ocdbt::Item& item) { return Take(database, item); }));
    return Finish();
  }

 private:
  /// The longest name in the tree that the key begins with, up to a "/"; the key's own form tells the others.
  std::optional<std::string> NameOf(std::string_view key) {
    for (std::size_t slash = key.rfind('/'); slash != std::string_view::npos && slash > 0; slash = key.rfind('/', slash - 1)) {
      const auto known = names_.find(std::string(key.substr(0, slash)));
      if (known != names_.end()) return *known;
    }
    if (names_.contains("")) return std::string();
    const std::size_t slash = key.rfind('/');
    if (slash != std::string_view::npos && key.substr(slash + 1) == MetadataName(form_)) others_->emplace(key.substr(0, slash));
    return std::nullopt;
  }

  Status Take(ocdbt::Database& database, const ocdbt::Item& item) {
    const std::optional<std::string> name = NameOf(item.key);
    if (!name) return OkStatus();
    if (name_ != name) {
      CROSSDOCK_RETURN_IF_ERROR(Finish());
      if (!done_.insert(*name).second) {
        return MakeError(ErrorCode::kUnsupported, "the keys of two arrays lie among each other: a name holds a \"/\"").WithTensor(*name);
      }
      name_ = name;
    }
    const std::string_view rest = name->empty() ? item.key : item.key.substr(name->size() + 1);
    if (rest == MetadataName(form_)) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, database.ReadValue(item));
      auto parsed = Parse(form_, text);
      if (!parsed) return Of(*name, std::move(parsed).error());
      metadata_ = *std::move(parsed);
      CROSSDOCK_ASSIGN_OR_RETURN(nowhere_, PlaceOf(item));
      nowhere_->inlined.reset();
      return OkStatus();
    }
    auto place = PlaceOf(item);
    if (!place) return Of(*name, std::move(place).error());
    objects_.emplace(rest, *std::move(place));
    return OkStatus();
  }

  Result<zarr::Stored> PlaceOf(const ocdbt::Item& item) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int32_t file, files_.Number(item.place.path));
    const auto end = CheckedAdd(item.place.bytes.offset, item.place.bytes.length);
    if (!end || *end > files_.SizeOf(file)) {
      return MakeError(ErrorCode::kCorrupt, "a value lies beyond the end of its data file")
          .WithPath(io::JoinPath(files_.dir(), item.place.path)).WithOffset(item.place.bytes.offset)
          .WithExpected(std::to_string(item.place.bytes.length) + " bytes")
          .WithFound("a file of " + std::to_string(files_.SizeOf(file)) + " bytes");
    }
    zarr::Stored stored{file, item.place.bytes};
    if (item.inlined) stored.inlined = std::string(*item.inlined);
    return stored;
  }

  Status Finish() {
    if (!name_) return OkStatus();
    const std::string name = *std::exchange(name_, std::nullopt);
    const auto objects = std::exchange(objects_, {});
    const auto metadata = std::exchange(metadata_, std::nullopt);
    if (!metadata) {
      return MakeError(ErrorCode::kIncomplete, "an array has chunks but no metadata")
          .WithPath(files_.dir()).WithTensor(name).WithExpected("a key `" + name + "/" + std::string(MetadataName(form_)) + "`");
    }
    zarr::ObjectStore store;
    store.find = [&](const std::string& key) -> Result<std::optional<zarr::Stored>> {
      const auto at = objects.find(key);
      return at == objects.end() ? std::nullopt : std::optional(at->second);
    };
    store.open = [&](std::int32_t file) { return files_.Open(file); };
    if (form_.zeros_left_out) store.zeros = nowhere_;
    auto placed = zarr::PlaceChunks(*metadata, store);
    if (!placed) return Of(name, std::move(placed).error());
    return take_({name, *metadata, *std::move(placed)});
  }

  StoreFiles& files_;
  const std::set<std::string>& names_;
  StoreForm form_;
  const TakeArray& take_;
  std::set<std::string>* others_;
  std::set<std::string> done_;
  std::optional<std::string> name_;
  std::optional<zarr::ArrayMetadata> metadata_;
  std::optional<zarr::Stored> nowhere_;  ///< where the metadata lies: what is not stored is said to be there
  std::map<std::string, zarr::Stored, std::less<>> objects_;
};

}  // namespace

Result<std::optional<std::int32_t>> StoreFiles::Find(const std::string& path) {
  const auto known = numbers_.find(path);
  if (known != numbers_.end()) return std::optional(known->second);
  const std::string whole = io::JoinPath(dir(), path);
  auto info = storage_.Stat(whole);
  if (!info && info.error().code == ErrorCode::kIncomplete) return std::optional<std::int32_t>();
  if (!info) return std::move(info).error();
  if (info->is_symlink) {
    return MakeError(ErrorCode::kUnsafe, "a symbolic link stands where a checkpoint has a file of its own")
        .WithPath(whole).WithHint("copy the checkpoint with its links resolved (cp -rL)");
  }
  if (info->kind != io::FileKind::kFile) {
    return MakeError(ErrorCode::kCorrupt, "something stands in place of a file of a checkpoint").WithPath(whole).WithExpected("a file");
  }
  if (catalog_.files.size() >= kMostFiles) {
    return MakeError(ErrorCode::kUnsupported, "a checkpoint has too many files").WithExpected("at most " + std::to_string(kMostFiles));
  }
  const auto number = static_cast<std::int32_t>(catalog_.files.size());
  catalog_.files.push_back({item_.empty() ? path : io::JoinPath(item_, path), {info->size, info->mtime_ns, info->inode}});
  numbers_.emplace(path, number);
  return std::optional(number);
}

Result<std::int32_t> StoreFiles::Number(const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::int32_t> number, Find(path));
  if (number) return *number;
  return MakeError(ErrorCode::kIncomplete, "a data file of a checkpoint is missing")
      .WithPath(io::JoinPath(dir(), path)).WithHint("copy it from where the checkpoint was saved");
}

Result<std::shared_ptr<const io::ReadFile>> StoreFiles::Open(std::int32_t file) const {
  const std::string& path = catalog_.files[static_cast<std::size_t>(file)].path;
  CROSSDOCK_ASSIGN_OR_RETURN(auto opened, storage_.OpenRead(io::JoinPath(catalog_.root, path)));
  return std::shared_ptr<const io::ReadFile>(std::move(opened));
}

Status ReadOcdbtArrays(StoreFiles& files, const std::set<std::string>& names, StoreForm form, const TakeArray& take,
                       std::set<std::string>* others) {
  return OcdbtArrays(files, names, form, take, others).Run();
}

Status ReadDirectoryArrays(StoreFiles& files, const std::set<std::string>& names, StoreForm form, const TakeArray& take) {
  for (const std::string& name : names) {
    Status safe = io::CheckRelativePath(name.empty() ? "array" : name);
    if (!safe) return Of(name, std::move(safe).error());
    const std::string prefix = name.empty() ? "" : name + "/";
    const std::string path = prefix + std::string(MetadataName(form));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::int32_t> number, files.Find(path));
    if (!number) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(files.storage(), io::JoinPath(files.dir(), path), kLargestMetadata));
    auto metadata = Parse(form, text);
    if (!metadata) return Of(name, std::move(metadata).error()).WithPath(io::JoinPath(files.dir(), path));
    zarr::ObjectStore store;
    store.find = [&](const std::string& key) -> Result<std::optional<zarr::Stored>> {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::optional<std::int32_t> file, files.Find(prefix + key));
      if (!file) return std::optional<zarr::Stored>();
      return std::optional(zarr::Stored{*file, {0, files.SizeOf(*file)}});
    };
    store.open = [&](std::int32_t file) { return files.Open(file); };
    if (form.zeros_left_out) store.zeros = zarr::Stored{*number, {0, 0}};
    auto placed = zarr::PlaceChunks(*metadata, store);
    if (!placed) {
      Error error = Of(name, std::move(placed).error());
      if (error.path.empty()) error.path = io::JoinPath(files.dir(), name);
      return error;
    }
    CROSSDOCK_RETURN_IF_ERROR(take({name, *std::move(metadata), *std::move(placed)}));
  }
  return OkStatus();
}

}  // namespace crossdock::formats::orbax
