// SPDX-License-Identifier: Apache-2.0
/// The safetensors writer. Shards are cut as huggingface_hub's split_torch_state_dict_into_shards does; each file then has
/// the bytes of `save_file`, so a directory of ours can be compared with the library's bit for bit.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/endian.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/index.h"
#include "formats/safetensors/safetensors.h"

namespace crossdock::formats::safetensors {
namespace {

constexpr std::size_t kIndexPiece = std::size_t{1} << 20U;

/// One tensor to be written: an entry of the target, or a counter whose value is known already. Needed to lay out only.
struct Item {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::int64_t bytes = 0;
  std::int32_t entry = -1;        ///< -1: a counter
  std::int64_t value = 0;
};

/// A line of the index.
struct Line {
  std::string_view name;
  std::int32_t file = -1;
};

class SafetensorsWriter final : public CheckpointWriter {
 public:
  explicit SafetensorsWriter(WriterOptions options) : options_(std::move(options)) {}

  Result<Placement> LayOut(Catalog target) override {
    CROSSDOCK_CHECK(files_.empty());  // called once
    CROSSDOCK_RETURN_IF_ERROR(CollectItems(target));
    const std::vector<std::vector<std::size_t>> shards = CutShards();
    Placement placement;
    placement.catalog = std::move(target);
    placement.catalog.files.clear();
    for (std::size_t k = 0; k < shards.size(); ++k) {
      const std::string name = shards.size() == 1
                                   ? options_.stem + ".safetensors"
                                   : fmt::format("{}-{:05}-of-{:05}.safetensors", options_.stem, k + 1, shards.size());
      CROSSDOCK_RETURN_IF_ERROR(PlaceFile(name, shards[k], &placement));
    }
    for (const FileRef& file : placement.catalog.files) files_.push_back(file.path);
    MeasureIndex(placement.catalog);
    items_ = std::vector<Item>();
    options_.order = std::vector<std::string>();
    options_.follows = std::map<std::string, std::string>();
    return placement;
  }

  Result<std::vector<Frame>> Seal(const Catalog&, std::int32_t, std::int32_t, std::uint32_t) const override {
    return std::vector<Frame>{};  // nothing stands between or behind the data
  }

  Status WriteMetadata(const Catalog& placed, io::Storage& storage, const std::string& dir) override {
    if (!HasIndex()) return OkStatus();
    CROSSDOCK_ASSIGN_OR_RETURN(auto file, storage.Create(io::JoinPath(dir, IndexName())));
    std::string piece = index_head_;
    std::int64_t offset = 0;
    const auto flush = [&]() -> Status {
      CROSSDOCK_RETURN_IF_ERROR(file->WriteAt(offset, std::as_bytes(std::span(piece.data(), piece.size()))));
      offset += static_cast<std::int64_t>(piece.size());
      piece.clear();
      return OkStatus();
    };
    const std::vector<Line> lines = Lines(placed);
    for (const Line& line : lines) {
      piece += Print(line, &line == &lines.back());
      if (piece.size() >= kIndexPiece) CROSSDOCK_RETURN_IF_ERROR(flush());
    }
    piece += IndexTail();
    CROSSDOCK_RETURN_IF_ERROR(flush());
    return file->Sync();
  }

  std::vector<FileRef> MetadataFiles() const override {
    if (!HasIndex()) return {};
    FileRef file;
    file.path = IndexName();
    file.identity.size = index_size_;
    return {file};
  }

 private:
  [[nodiscard]] bool HasIndex() const { return files_.size() > 1 || options_.always_index; }
  [[nodiscard]] std::string IndexName() const { return options_.stem + ".safetensors.index.json"; }

  void MeasureIndex(const Catalog& placed) {
    std::int64_t parameters = 0;
    std::int64_t bytes = 0;
    for (const Item& item : items_) {
      parameters += CheckedCount(item.shape);
      bytes += item.bytes;
    }
    index_head_ = IndexHead(parameters, bytes);
    std::size_t size = index_head_.size() + IndexTail().size();
    const std::vector<Line> lines = Lines(placed);
    for (const Line& line : lines) size += Print(line, &line == &lines.back()).size();
    index_size_ = static_cast<std::int64_t>(size);
  }

  /// Sorted by name.
  [[nodiscard]] std::vector<Line> Lines(const Catalog& placed) const {
    std::vector<Line> lines;
    lines.reserve(placed.entries.size() + counters_.size());
    for (const Entry& entry : placed.entries) lines.push_back({entry.name, entry.chunks[0].file});
    for (const auto& [name, file] : counters_) lines.push_back({name, file});
    std::ranges::sort(lines, {}, &Line::name);
    return lines;
  }

  [[nodiscard]] std::string Print(const Line& line, bool last) const {
    return IndexLine(line.name, files_[static_cast<std::size_t>(line.file)], last);
  }

  Status CollectItems(const Catalog& target) {
    if (const auto meta = target.objects.find("meta"); meta != target.objects.end()) {
      const Value::Dict* dict = meta->second.as_dict();
      CROSSDOCK_CHECK(dict != nullptr);
      for (const auto& [key, value] : dict->items) {
        CROSSDOCK_CHECK(key.as_string() != nullptr && value.as_int() != nullptr);
        items_.push_back({*key.as_string(), DType::kI64, {}, 8, -1, *value.as_int()});
      }
    }
    for (std::size_t i = 0; i < target.entries.size(); ++i) {
      const Entry& entry = target.entries[i];
      CROSSDOCK_CHECK(entry.chunks.size() == 1 && entry.chunks[0].box == Box::Whole(entry.shape));
      CROSSDOCK_RETURN_IF_ERROR(CheckName(entry.name));
      auto bytes = ByteSize(entry.dtype, entry.shape);
      if (!bytes) return std::move(bytes).error().WithTensor(entry.name);
      items_.push_back({entry.name, entry.dtype, entry.shape, *bytes, static_cast<std::int32_t>(i), 0});
    }
    return OkStatus();
  }

  static Status CheckName(const std::string& name) {
    if (name == "__metadata__") {
      return MakeError(ErrorCode::kUnsupported, "a safetensors file cannot hold a tensor of this name").WithTensor(name);
    }
    if (!simdjson::validate_utf8(name.data(), name.size())) {
      return MakeError(ErrorCode::kUnsupported, "the name is no UTF-8, which safetensors needs").WithTensor(name);
    }
    return OkStatus();
  }

  /// Greedy, in the order asked for: what is above the limit gets a shard at once, before the one still being filled.
  std::vector<std::vector<std::size_t>> CutShards() const {
    std::vector<std::vector<std::size_t>> shards;
    std::vector<std::size_t> current;
    std::int64_t filled = 0;
    for (std::vector<std::size_t>& group : Groups()) {
      std::int64_t bytes = 0;
      for (const std::size_t i : group) bytes += items_[i].bytes;
      if (bytes > options_.max_shard_bytes) {
        shards.push_back(std::move(group));
        continue;
      }
      if (filled > options_.max_shard_bytes - bytes) {
        shards.push_back(std::move(current));
        current.clear();
        filled = 0;
      }
      current.insert(current.end(), group.begin(), group.end());
      filled += bytes;
    }
    if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
    return shards;
  }

  /// What stays together, in the order asked for: a tensor and those that follow it.
  std::vector<std::vector<std::size_t>> Groups() const {
    std::vector<std::vector<std::size_t>> groups;
    std::unordered_map<std::string_view, std::size_t> group_of;
    std::vector<std::size_t> followers;
    for (const std::size_t i : FillOrder()) {
      if (options_.follows.contains(items_[i].name)) {
        followers.push_back(i);
        continue;
      }
      group_of[items_[i].name] = groups.size();
      groups.push_back({i});
    }
    for (const std::size_t i : followers) {
      const auto leader = group_of.find(options_.follows.at(items_[i].name));
      CROSSDOCK_CHECK(leader != group_of.end());
      groups[leader->second].push_back(i);
    }
    return groups;
  }

  std::vector<std::size_t> FillOrder() const {
    std::unordered_map<std::string_view, std::size_t> rank;
    for (const std::string& name : options_.order) rank.try_emplace(name, rank.size());
    std::vector<std::pair<std::size_t, std::size_t>> order;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const auto at = rank.find(items_[i].name);
      order.emplace_back(at != rank.end() ? at->second : items_[i].entry < 0 ? 0 : rank.size(), i);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::size_t> out;
    for (const auto& [unused, i] : order) out.push_back(i);
    return out;
  }

  Status PlaceFile(const std::string& name, std::vector<std::size_t> shard, Placement* placement) {
    std::sort(shard.begin(), shard.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(items_[a].dtype, items_[a].name) < std::tie(items_[b].dtype, items_[b].name);
    });
    const auto number = static_cast<std::int32_t>(placement->catalog.files.size());
    std::vector<HeaderTensor> tensors;
    std::int64_t end = 0;
    for (const std::size_t i : shard) {
      const Item& item = items_[i];
      tensors.push_back({item.name, item.dtype, item.shape, {end, item.bytes}});
      const auto next = CheckedAdd(end, item.bytes);
      if (!next) return MakeError(ErrorCode::kUnsupported, "a file would be too large").WithPath(name);
      end = *next;
    }
    std::string header = PrintHeader(tensors, options_.metadata);
    const auto start = static_cast<std::int64_t>(header.size());
    if (start - 8 > kMaxHeaderBytes) {
      return MakeError(ErrorCode::kUnsupported, "too many tensors for the header of one safetensors file")
          .WithPath(name)
          .WithExpected(fmt::format("a header of at most {} bytes", kMaxHeaderBytes))
          .WithFound(fmt::format("{} bytes", start - 8))
          .WithHint("use a smaller --max-shard-size");
    }
    const auto size = CheckedAdd(start, end);
    if (!size) return MakeError(ErrorCode::kUnsupported, "a file would be too large").WithPath(name);
    placement->frames.push_back({number, 0, std::move(header)});
    for (std::size_t k = 0; k < shard.size(); ++k) {
      const Item& item = items_[shard[k]];
      const std::int64_t offset = start + tensors[k].bytes.offset;
      if (item.entry < 0) {
        counters_.emplace_back(item.name, number);
        std::string bytes(8, '\0');
        StoreLittle<std::int64_t>(bytes.data(), item.value);
        placement->frames.push_back({number, offset, std::move(bytes)});
        continue;
      }
      Chunk& chunk = placement->catalog.entries[static_cast<std::size_t>(item.entry)].chunks[0];
      chunk.file = number;
      chunk.bytes = {offset, item.bytes};
      chunk.encoding = ChunkEncoding::kRaw;
    }
    FileRef file;
    file.path = name;
    file.identity.size = *size;
    placement->catalog.files.push_back(std::move(file));
    return OkStatus();
  }

  WriterOptions options_;
  std::vector<Item> items_;                                    // empty once it is laid out
  std::vector<std::pair<std::string, std::int32_t>> counters_;  // name, file
  std::vector<std::string> files_;
  std::string index_head_;
  std::int64_t index_size_ = 0;
};

}  // namespace

std::unique_ptr<CheckpointWriter> MakeSafetensorsWriter(WriterOptions options) {
  return std::make_unique<SafetensorsWriter>(std::move(options));
}

}  // namespace crossdock::formats::safetensors
