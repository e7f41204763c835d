// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/plain_state.h"

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "base/endian.h"
#include "formats/dcp/object_files.h"
#include "formats/safetensors/directory.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch_zip/blob.h"

namespace crossdock::formats::dcp {
namespace {

constexpr std::int64_t kLargestItem = 1 << 20;   // a group's list of parameter names; data loaders store more
constexpr std::size_t kOpenAtOnce = 64;

/// One file at a time stays open for many small reads.
class Files {
 public:
  Files(io::Storage& storage, const std::string& dir, const Catalog& catalog) : storage_(storage), dir_(dir), catalog_(catalog) {}

  Result<const io::ReadFile*> Open(std::int32_t index) {
    if (const auto found = open_.find(index); found != open_.end()) return found->second.get();
    CROSSDOCK_ASSIGN_OR_RETURN(auto file, storage_.OpenRead(io::JoinPath(dir_, catalog_.files.at(static_cast<std::size_t>(index)).path)));
    if (open_.size() >= kOpenAtOnce) open_.clear();
    return (open_[index] = std::move(file)).get();
  }

 private:
  io::Storage& storage_;
  const std::string& dir_;
  const Catalog& catalog_;
  std::map<std::int32_t, std::unique_ptr<io::ReadFile>> open_;
};

bool IsCounter(const Entry& entry) {
  if (!entry.shape.empty() || entry.chunks.size() != 1) return false;
  const std::string_view name = entry.name;
  return name == "step" || name.ends_with(".step") || name.starts_with("param_groups.") || name.find(".param_groups.") != std::string_view::npos;
}

/// The one element as a number; nothing for types that hold none.
std::optional<Value> ScalarOf(DType dtype, const std::byte* bytes) {
  switch (dtype) {
    case DType::kI64: return Value(LoadLittle<std::int64_t>(bytes));
    case DType::kI32: return Value(static_cast<std::int64_t>(LoadLittle<std::int32_t>(bytes)));
    case DType::kF32: {
      float real = 0;
      std::memcpy(&real, bytes, sizeof real);
      return Value(static_cast<double>(real));
    }
    case DType::kF64: {
      double real = 0;
      std::memcpy(&real, bytes, sizeof real);
      return Value(real);
    }
    default: return std::nullopt;
  }
}

Result<std::optional<Value>> ReadNumber(Files& files, const Entry& entry) {
  const Chunk& chunk = entry.chunks[0];
  CROSSDOCK_ASSIGN_OR_RETURN(const io::ReadFile* file, files.Open(chunk.file));
  const Result<ByteRange> range = torch_zip::LocateBlobData(*file, chunk.bytes, entry.dtype, entry.shape);
  if (!range) return Error(range.error()).WithTensor(entry.name);
  std::array<std::byte, 8> bytes{};
  if (range->length > static_cast<std::int64_t>(bytes.size())) return std::optional<Value>();
  CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(range->offset, std::span(bytes).first(static_cast<std::size_t>(range->length))));
  return ScalarOf(entry.dtype, bytes.data());
}

Status LoadScalars(Files& files, Catalog& catalog) {
  ValueDict scalars;
  std::vector<Entry> rest;
  for (Entry& entry : catalog.entries) {
    std::optional<Value> number;
    if (IsCounter(entry)) {
      CROSSDOCK_ASSIGN_OR_RETURN(number, ReadNumber(files, entry));
    }
    if (number) {
      scalars.emplace_back(Value(entry.name), *std::move(number));
    } else {
      rest.push_back(std::move(entry));
    }
  }
  catalog.entries = std::move(rest);
  catalog.objects["scalars"] = Value::MakeDict(std::move(scalars));
  return OkStatus();
}

Status LoadItems(Files& files, Catalog& catalog) {
  ValueDict items;
  for (const ObjectRef& ref : catalog.object_refs) {
    if (ref.bytes.length > kLargestItem) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(const io::ReadFile* file, files.Open(ref.file));
    Result<Value> value = LoadItem(*file, ref.bytes);
    if (value) {
      items.emplace_back(Value(ref.name), *std::move(value));
    } else if (value.error().code == ErrorCode::kIo) {
      return Error(value.error()).WithTensor(ref.name);
    } else {
      catalog.notices.push_back("the object `" + Printable(ref.name) + "` is not read: " + value.error().message);
    }
  }
  catalog.objects["items"] = Value::MakeDict(std::move(items));
  return OkStatus();
}

/// The files directly in `dir`: a run's directory may hold thousands of checkpoints below.
Status ListBeside(io::Storage& storage, const std::string& dir, Catalog& catalog) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(dir));
  for (const io::DirEntry& entry : entries) {
    const bool data = entry.name.ends_with(".distcp") || safetensors::IsWeightFile(entry.name);
    if (entry.kind != io::FileKind::kFile || entry.name.starts_with('.') || data || entry.name == "config.json") continue;
    SideFile file;
    file.path = entry.name;
    file.copy_from = io::JoinPath(dir, entry.name);
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, storage.Stat(file.copy_from));
    file.size = info.size;
    catalog.side_files.push_back(std::move(file));
  }
  return OkStatus();
}

}  // namespace

Status LoadPlainState(io::Storage& storage, const std::string& dir, Catalog& catalog) {
  Files files(storage, dir, catalog);
  CROSSDOCK_RETURN_IF_ERROR(LoadScalars(files, catalog));
  return LoadItems(files, catalog);
}

Status LoadModelFiles(io::Storage& storage, const std::string& dir, Catalog& catalog) {
  const std::string above = io::ParentPath(io::AbsolutePath(dir));
  for (const std::string& place : {dir, above}) {
    const std::string config = io::JoinPath(place, "config.json");
    if (!io::Exists(storage, config)) continue;
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage, config));
    Result<Value> value = ParseJson(text);
    if (!value) return std::move(value).error().WithPath(config);
    if (value->as_dict() == nullptr) return MakeError(ErrorCode::kCorrupt, "the configuration is no JSON object").WithPath(config);
    catalog.objects["config.json"] = *std::move(value);
    if (place != dir) catalog.notices.push_back("config.json is that of the directory above, `" + Printable(place) + "`");
    return ListBeside(storage, place, catalog);
  }
  return OkStatus();
}

}  // namespace crossdock::formats::dcp
