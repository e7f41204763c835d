// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "base/endian.h"
#include "formats/placed_reader.h"
#include "formats/safetensors/directory.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/safetensors.h"
#include "tensor/find_near.h"

namespace crossdock::formats::safetensors {
namespace {

constexpr std::string_view kMetaPrefix = "meta/";
constexpr std::size_t kNamesShown = 5;
constexpr std::size_t kFilesShown = 20;
constexpr std::size_t kFewFiles = 8;  // so many are read one after the other: threads would cost more

/// "12 tensors (`a`, `b`, ...)".
std::string Tensors(const std::vector<std::string_view>& names) {
  std::string out = fmt::format("{} {}", names.size(), names.size() == 1 ? "tensor" : "tensors");
  for (std::size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    out += (i == 0 ? " (`" : ", `") + Printable(names[i]) + "`";
  }
  if (!names.empty()) out += names.size() > kNamesShown ? ", ...)" : ")";
  return out;
}

std::vector<std::string_view> TensorsOf(const Index& index, std::size_t file) {
  std::vector<std::string_view> names;
  for (const Index::Item& item : index.items) {
    if (static_cast<std::size_t>(item.file) == file) names.push_back(item.name);
  }
  return names;
}

bool IsFullStateHeader(const Header& header) {
  for (const auto& [key, text] : header.metadata) {
    if (key == "format" && text.find("full-state") != std::string::npos) return true;
  }
  return std::any_of(header.tensors.begin(), header.tensors.end(),
                     [](const HeaderTensor& t) { return t.name.starts_with("param/") || t.name.starts_with("optim/"); });
}

/// Builds the catalog, file by file.
class Builder {
 public:
  Builder(io::Storage& storage, Weights weights) : storage_(storage), weights_(std::move(weights)) {
    catalog_.format = "safetensors";
    catalog_.root = io::AbsolutePath(weights_.dir);
    catalog_.notices = std::move(weights_.notices);
  }

  Result<Catalog> Build() {
    CROSSDOCK_RETURN_IF_ERROR(CheckPresent());
    CROSSDOCK_RETURN_IF_ERROR(AddFiles());
    catalog_.SortEntries();
    CROSSDOCK_RETURN_IF_ERROR(CheckUnique());
    if (weights_.index) CROSSDOCK_RETURN_IF_ERROR(CheckIndex());
    if (catalog_.entries.empty() && weights_.index) {
      return MakeError(ErrorCode::kIncomplete, "the weight files hold no tensor").WithPath(weights_.dir);
    }
    SetObjects();
    CROSSDOCK_RETURN_IF_ERROR(AddSideFiles());
    return std::move(catalog_);
  }

 private:
  [[nodiscard]] std::string PathOf(std::size_t file) const { return io::JoinPath(catalog_.root, weights_.files[file]); }

  Status CheckPresent() {
    std::vector<bool> absent(weights_.files.size());
    std::size_t missing = 0;
    std::string names;
    for (std::size_t i = 0; i < weights_.files.size(); ++i) {
      CROSSDOCK_RETURN_IF_ERROR(CheckLink(storage_, PathOf(i)));
      if (io::Exists(storage_, PathOf(i))) continue;
      absent[i] = true;
      if (++missing <= kFilesShown) names += (missing == 1 ? "`" : ", `") + Printable(weights_.files[i]) + "`";
    }
    if (missing == 0) return OkStatus();
    if (missing > kFilesShown) names += ", ...";
    // One pass over the index: it may name as many files as tensors, and all of them may be missing.
    std::vector<std::string_view> hit;
    if (weights_.index) {
      for (const Index::Item& item : weights_.index->items) {
        if (absent[static_cast<std::size_t>(item.file)]) hit.push_back(item.name);
      }
    }
    return MakeError(ErrorCode::kIncomplete, fmt::format("{} of {} weight files of the index are missing, with {}",
                                                         missing, weights_.files.size(), Tensors(hit)))
        .WithPath(weights_.index_path.empty() ? weights_.dir : weights_.index_path)
        .WithTensor(hit.empty() ? "" : std::string(hit[0]))
        .WithExpected(std::move(names))
        .WithFound("no such file")
        .WithHint("the download or copy is incomplete; fetch the missing files");
  }

  struct FileHeader {
    FileRef file;
    Header header;
  };

  /// Headers of many files are read and parsed by several threads, a few at a time: on a network each costs its latency.
  Status AddFiles() {
    const std::size_t files = weights_.files.size();
    const std::size_t at_once = files <= kFewFiles ? 1 : std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 8);
    for (std::size_t first = 0; first < files; first += at_once) {
      std::vector<std::optional<Result<FileHeader>>> read(std::min(at_once, files - first));
      {
        std::vector<std::jthread> threads;  // joined at the end of the block
        for (std::size_t i = 1; i < read.size(); ++i) threads.emplace_back([&, i] { read[i] = ReadFileHeader(first + i); });
        read[0] = ReadFileHeader(first);
      }
      for (std::size_t i = 0; i < read.size(); ++i) CROSSDOCK_RETURN_IF_ERROR(AddFile(first + i, *std::move(read[i])));
    }
    return OkStatus();
  }

  Status AddFile(std::size_t number, Result<FileHeader> read) {
    if (!read) {
      Error error = std::move(read).error();
      if (weights_.index && error.code != ErrorCode::kIo) {
        error.message += fmt::format("; the index places {} in it", Tensors(TensorsOf(*weights_.index, number)));
      }
      return error;
    }
    catalog_.files.push_back(std::move(read->file));
    Header& header = read->header;
    MergeMetadata(header.metadata, weights_.files[number]);
    for (std::string& notice : header.notices) catalog_.notices.push_back(std::move(notice));
    const bool full_state = IsFullStateHeader(header);
    for (HeaderTensor& tensor : header.tensors) {
      if (full_state && tensor.name.starts_with(kMetaPrefix) && tensor.dtype == DType::kI64 && tensor.bytes.length == 8) {
        CROSSDOCK_RETURN_IF_ERROR(LoadMeta(number, header.data_start, tensor));
        continue;
      }
      Entry entry;
      entry.name = std::move(tensor.name);
      entry.dtype = tensor.dtype;
      entry.shape = tensor.shape;
      Chunk chunk;
      chunk.box = Box::Whole(entry.shape);
      chunk.file = static_cast<std::int32_t>(number);
      chunk.bytes = {header.data_start + tensor.bytes.offset, tensor.bytes.length};
      entry.chunks.push_back(std::move(chunk));
      catalog_.entries.push_back(std::move(entry));
    }
    return OkStatus();
  }

  [[nodiscard]] Result<FileHeader> ReadFileHeader(std::size_t number) const {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.OpenRead(PathOf(number)));
    CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
    if (info.kind != io::FileKind::kFile) {
      return MakeError(ErrorCode::kCorrupt, "a weight file is no regular file").WithPath(PathOf(number));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(Header header, ReadHeader(*file, info.size));
    return FileHeader{{weights_.files[number], {info.size, info.mtime_ns, info.inode}}, std::move(header)};
  }

  /// The counters of a full-state file are values of the catalog: whoever plans needs them before any data moves.
  Status LoadMeta(std::size_t number, std::int64_t data_start, const HeaderTensor& tensor) {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.OpenRead(PathOf(number)));
    std::array<std::byte, 8> bytes{};
    CROSSDOCK_RETURN_IF_ERROR(file->ReadAt(data_start + tensor.bytes.offset, bytes));
    if (meta_.Find(tensor.name) != nullptr) {
      return MakeError(ErrorCode::kCorrupt, "a tensor lies in two files").WithPath(PathOf(number)).WithTensor(tensor.name);
    }
    meta_.Set(tensor.name, Value(LoadLittle<std::int64_t>(bytes.data())));
    return OkStatus();
  }

  void MergeMetadata(const Metadata& metadata, const std::string& file) {
    for (const auto& [key, text] : metadata) {
      const Value* before = metadata_.Find(key);
      if (before == nullptr) {
        metadata_.Set(key, Value(text));
      } else if (const std::string* other = before->as_string(); other != nullptr && *other != text) {
        catalog_.notices.push_back(fmt::format("{}: metadata `{}` differs from that of an earlier file, which is kept",
                                               Printable(file), Printable(key)));
      }
    }
  }

  Status CheckUnique() const {
    for (std::size_t i = 1; i < catalog_.entries.size(); ++i) {
      const Entry& a = catalog_.entries[i - 1];
      const Entry& b = catalog_.entries[i];
      if (a.name != b.name) continue;
      return MakeError(ErrorCode::kCorrupt, "a tensor lies in two files")
          .WithPath(PathOf(static_cast<std::size_t>(b.chunks[0].file)))
          .WithTensor(a.name)
          .WithFound(fmt::format("`{}` and `{}`", Printable(weights_.files[static_cast<std::size_t>(a.chunks[0].file)]),
                                 Printable(weights_.files[static_cast<std::size_t>(b.chunks[0].file)])))
          .WithHint("files of two checkpoints are mixed; remove the stale one");
    }
    return OkStatus();
  }

  /// What the index says against what the headers hold.
  Status CheckIndex() {
    std::vector<std::string_view> ghosts;
    std::vector<std::string_view> moved;
    std::size_t known = 0;
    std::int32_t near = 0;
    for (const Index::Item& item : weights_.index->items) {
      const std::int32_t at = FindNear(catalog_, item.name, &near);
      if (at >= 0) {
        ++known;
        if (catalog_.entries[static_cast<std::size_t>(at)].chunks[0].file != item.file) moved.push_back(item.name);
      } else if (meta_.Find(item.name) == nullptr) {
        ghosts.push_back(item.name);
      }
    }
    if (!ghosts.empty()) {
      return MakeError(ErrorCode::kIncomplete, "the index lists what no file holds: " + Tensors(ghosts))
          .WithPath(weights_.index_path)
          .WithTensor(std::string(ghosts[0]))
          .WithExpected(fmt::format("in `{}`", Printable(FileOf(ghosts[0]))))
          .WithHint("index and files belong to different checkpoints, or a file is incomplete; fetch both again");
    }
    if (!moved.empty()) catalog_.notices.push_back("the index names the wrong file for " + Tensors(moved));
    if (known < catalog_.entries.size()) {
      catalog_.notices.push_back(fmt::format("{} tensors are in the files but not in the index; they are used",
                                             catalog_.entries.size() - known));
    }
    std::int64_t total = 8 * static_cast<std::int64_t>(meta_.as_dict()->items.size());
    for (const Entry& entry : catalog_.entries) total += entry.chunks[0].bytes.length;
    if (weights_.index->total_size && *weights_.index->total_size != total) {
      catalog_.notices.push_back(fmt::format("the index says total_size {}, the files hold {} bytes of tensors",
                                             *weights_.index->total_size, total));
    }
    return OkStatus();
  }

  std::string FileOf(std::string_view name) const {
    for (const Index::Item& item : weights_.index->items) {
      if (item.name == name) return weights_.index->files[static_cast<std::size_t>(item.file)];
    }
    return {};
  }

  void SetObjects() {
    if (!metadata_.as_dict()->items.empty()) catalog_.objects["__metadata__"] = std::move(metadata_);
    if (const Value* step = meta_.Find("meta/step")) catalog_.step = *step->as_int();
    if (!meta_.as_dict()->items.empty()) catalog_.objects["meta"] = std::move(meta_);
  }

  Status AddSideFiles() {
    const std::string config = io::JoinPath(catalog_.root, "config.json");
    CROSSDOCK_RETURN_IF_ERROR(CheckLink(storage_, config));
    if (!io::Exists(storage_, config)) {
      // A lone file among others that are not a model's: nothing there is known to belong to it.
      if (!weights_.index && weights_.files.size() == 1 && weights_.files[0] != "model.safetensors") return OkStatus();
    } else {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage_, config));
      auto value = ParseJson(text);
      if (!value) return std::move(value).error().WithPath(config);
      if (value->as_dict() == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "the configuration is no JSON object").WithPath(config);
      }
      catalog_.objects["config.json"] = *std::move(value);
    }
    CROSSDOCK_ASSIGN_OR_RETURN(catalog_.side_files, ListSideFiles(storage_, catalog_.root, &catalog_.notices));
    return OkStatus();
  }

  io::Storage& storage_;
  Weights weights_;
  Catalog catalog_;
  Value metadata_ = Value::MakeDict();
  Value meta_ = Value::MakeDict();
};

/// A full state's index names tensors `param/...` or `optim/...`. To parse one of 100,000 names costs ten times as much as to search it,
/// and whoever reads the checkpoint parses it anyway.
bool IndexRulesOutFullState(io::Storage& storage, const std::string& path) {
  const auto text = io::ReadSmallFile(storage, io::JoinPath(path, "model.safetensors.index.json"), kMaxIndexBytes);
  // strstr is by far the fastest search there is. What lies behind a zero byte is not JSON, as the parser will say.
  return text && std::strstr(text->c_str(), "\"param") == nullptr && std::strstr(text->c_str(), "\"optim") == nullptr;
}

}  // namespace

Result<std::unique_ptr<CheckpointReader>> OpenSafetensors(io::Storage& storage, const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string resolved, ResolveHubCache(storage, path));
  CROSSDOCK_ASSIGN_OR_RETURN(Weights weights, ChooseWeights(storage, resolved));
  CROSSDOCK_ASSIGN_OR_RETURN(Catalog catalog, Builder(storage, std::move(weights)).Build());
  return std::unique_ptr<CheckpointReader>(std::make_unique<PlacedReader>(std::move(catalog), "safetensors files"));
}

Result<std::vector<std::string>> ReadTensorOrder(io::Storage& storage, const std::string& dir) {
  std::vector<std::string> order;
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string resolved, ResolveHubCache(storage, dir));
  auto weights = ChooseWeights(storage, resolved);
  if (!weights) {
    const ErrorCode code = weights.error().code;
    if (code == ErrorCode::kIncomplete || code == ErrorCode::kUsage || code == ErrorCode::kUnsupported) return order;
    return std::move(weights).error();
  }
  if (weights->index) {
    for (Index::Item& item : weights->index->items) order.push_back(std::move(item.name));
    return order;
  }
  const std::string path = io::JoinPath(weights->dir, weights->files[0]);
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  CROSSDOCK_ASSIGN_OR_RETURN(Header header, ReadHeader(*file, info.size));
  for (HeaderTensor& tensor : header.tensors) order.push_back(std::move(tensor.name));
  return order;
}

bool LooksFullState(io::Storage& storage, const std::string& path) {
  if (IndexRulesOutFullState(storage, path)) return false;
  const auto weights = ChooseWeights(storage, path);
  if (!weights || weights->files.empty()) return false;
  if (weights->index) {
    const auto& items = weights->index->items;
    if (std::any_of(items.begin(), items.end(), [](const Index::Item& i) { return i.name.starts_with("param/"); })) return true;
  }
  const auto file = storage.OpenRead(io::JoinPath(weights->dir, weights->files[0]));
  if (!file) return false;
  const auto info = (*file)->Info();
  if (!info) return false;
  const auto header = ReadHeader(**file, info->size);
  return header && IsFullStateHeader(*header);
}

}  // namespace crossdock::formats::safetensors
