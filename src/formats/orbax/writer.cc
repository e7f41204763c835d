// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/hash.h"
#include "formats/ocdbt/database.h"
#include "formats/ocdbt/tree_writer.h"
#include "formats/orbax/orbax.h"
#include "formats/orbax/scalars.h"
#include "formats/orbax/side_json.h"
#include "formats/orbax/step_files.h"
#include "formats/orbax/tree.h"
#include "formats/orbax/write_plan.h"
#include "formats/orbax/zstd_frame.h"

namespace crossdock::formats::orbax {
namespace {

constexpr std::int64_t kFileBytes = std::int64_t{2} << 30U;  // Orbax rolls its data files at this size too
constexpr std::int64_t kAlignFrom = 1 << 20;
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kSmallAlign = 64;

class OrbaxWriter final : public CheckpointWriter {
 public:
  Result<Placement> LayOut(Catalog target) override {
    CROSSDOCK_CHECK(!laid_out_);
    laid_out_ = true;
    target.format = "orbax";
    target.files.clear();
    target.object_refs.clear();
    CROSSDOCK_RETURN_IF_ERROR(ReadRequest(target));
    CROSSDOCK_RETURN_IF_ERROR(TakeConstants(target));
    CROSSDOCK_RETURN_IF_ERROR(CheckTree(target));
    if (zstd_level_ > 0) {  // the first is the one that none is larger than
      for (Entry& entry : target.entries) std::ranges::sort(entry.chunks, {}, [](const Chunk& chunk) -> const Dims& { return chunk.box.offsets; });
    }
    name_seed_ = SeedOf(target);
    for (Entry& entry : target.entries) {
      CROSSDOCK_ASSIGN_OR_RETURN(const WriteGrid grid, GridOf(entry));
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string json, ArrayJson(entry, grid, zarr3_, zstd_level_));
      CROSSDOCK_RETURN_IF_ERROR(CheckName(entry, grid));
      metadata_bytes_ += static_cast<std::int64_t>(json.size());
      CROSSDOCK_RETURN_IF_ERROR(ocdbt_ ? PlaceInData(entry, grid, target) : PlaceInFiles(entry, grid, json.size(), target));
    }
    for (const Constant& constant : constants_) {
      CROSSDOCK_ASSIGN_OR_RETURN(const WriteGrid grid, GridOf(constant.entry));
      CROSSDOCK_RETURN_IF_ERROR(CheckName(constant.entry, grid));
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string json, ArrayJson(constant.entry, grid, zarr3_));
      metadata_bytes_ += static_cast<std::int64_t>(json.size() + constant.bytes.size());
      if (ocdbt_) continue;
      metadata_files_.push_back({InItem(constant.entry.name + (zarr3_ ? "/zarr.json" : "/.zarray")), {.size = static_cast<std::int64_t>(json.size())}});
      metadata_files_.push_back({InItem(constant.entry.name + "/" + KeyOf(constant.entry.chunks.front(), grid, zarr3_)), {.size = static_cast<std::int64_t>(constant.bytes.size())}});
    }
    Estimate(target);
    return Placement{std::move(target), {}, false};
  }

  Result<std::vector<Frame>> Seal(const Catalog& /*placed*/, std::int32_t /*entry*/, std::int32_t /*chunk*/, std::uint32_t /*crc32*/) const override {
    return std::vector<Frame>{};
  }

  /// One zstd frame. A chunk at the edge is stored whole: what lies behind the array is zero.
  Result<std::string> Encode(const Catalog& placed, std::int32_t entry, std::int32_t /*chunk*/, std::span<const std::byte> elements) const override {
    const Entry& e = placed.entries[static_cast<std::size_t>(entry)];
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t whole, ByteSize(e.dtype, e.chunks.front().box.sizes));
    if (static_cast<std::int64_t>(elements.size()) == whole) return CompressZstd(elements, zstd_level_);
    std::vector<std::byte> padded(elements.begin(), elements.end());
    padded.resize(static_cast<std::size_t>(whole));
    return CompressZstd(padded, zstd_level_);
  }

  /// The manifest makes the arrays readable, the step's commit_success.txt the step: they come last.
  Status WriteMetadata(const Catalog& placed, io::Storage& storage, const std::string& dir) override {
    CROSSDOCK_RETURN_IF_ERROR(ocdbt_ ? WriteDatabase(placed, storage, dir) : WriteArrayFiles(placed, storage, dir));
    std::map<std::string, Shape> shapes;
    for (const Entry& entry : placed.entries) {
      CROSSDOCK_ASSIGN_OR_RETURN(const WriteGrid grid, GridOf(entry));
      shapes.emplace(entry.name, grid.chunk_shape);
    }
    for (const Constant& constant : constants_) shapes.emplace(constant.entry.name, constant.entry.shape);
    for (const auto& [name, bytes] : SmallFiles(placed, shapes)) CROSSDOCK_RETURN_IF_ERROR(PutFile(storage, io::JoinPath(dir, name), bytes));
    return OkStatus();
  }

  std::vector<FileRef> MetadataFiles() const override { return metadata_files_; }

 private:
  /// The words of objects["orbax"], with their usual values.
  Status ReadRequest(const Catalog& target) {
    const auto at = target.objects.find("orbax");
    const Value about = at == target.objects.end() ? Value::MakeDict() : at->second;
    item_ = about.GetString("item").value_or("items");
    handler_ = about.GetString("handler").value_or(std::string(kPyTreeHandler));
    ocdbt_ = about.GetBool("ocdbt").value_or(true);
    zarr3_ = about.GetBool("zarr3").value_or(true);
    commit_marker_ = about.GetBool("commit_marker").value_or(true);
    step_files_ = about.GetBool("step_files").value_or(true);
    zstd_level_ = static_cast<int>(about.GetInt("zstd_level").value_or(0));
    if (zstd_level_ < 0 || zstd_level_ > kHighestZstdLevel) {
      return MakeError(ErrorCode::kUsage, "zstd has no such level").WithExpected(fmt::format("1 to {}", kHighestZstdLevel)).WithFound(std::to_string(zstd_level_));
    }
    if (!item_.empty()) CROSSDOCK_RETURN_IF_ERROR(io::CheckRelativePath(item_));
    return OkStatus();
  }

  /// Arrays given by value; the rest of objects["scalars"] repeats entries.
  Status TakeConstants(const Catalog& target) {
    const auto at = target.objects.find("scalars");
    const Value::Dict* rows = at == target.objects.end() ? nullptr : at->second.as_dict();
    if (rows == nullptr) return OkStatus();
    for (const auto& [name, row] : rows->items) {
      if (name.as_string() == nullptr || target.Find(*name.as_string()) >= 0) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(Constant constant, ConstantOf(*name.as_string(), row));
      constants_.push_back(std::move(constant));
    }
    std::ranges::sort(constants_, {}, [](const Constant& constant) { return constant.entry.name; });
    return OkStatus();
  }

  [[nodiscard]] const Constant* FindConstant(const std::string& name) const {
    const auto at = std::ranges::lower_bound(constants_, name, {}, [](const Constant& constant) -> const std::string& { return constant.entry.name; });
    return at != constants_.end() && at->entry.name == name ? &*at : nullptr;
  }

  /// Rows and entries speak of the same arrays.
  [[nodiscard]] Status CheckTree(const Catalog& target) const {
    const auto at = target.objects.find("tree");
    if (at == target.objects.end() || at->second.as_sequence() == nullptr) {
      return MakeError(ErrorCode::kUnsupported, "a checkpoint cannot be written as Orbax without the tree that it is of");
    }
    std::set<std::string> names;
    for (const Value& row : *at->second.as_sequence()) {
      const Value* path = row.Find("path");
      const std::optional<std::string> type = row.GetString("value_type");
      CROSSDOCK_CHECK(path != nullptr && type.has_value());  // whoever makes the tree owes them
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string name, NameOfPath(*path));
      if (!HasArray(*type)) continue;
      if (!names.insert(name).second) {
        return MakeError(ErrorCode::kUnsupported, "two leaves of the tree would have one name in the store").WithTensor(name);
      }
      if (target.Find(name) < 0 && FindConstant(name) == nullptr) return MakeError(ErrorCode::kIncomplete, "a leaf of the tree has no tensor").WithTensor(name);
    }
    for (const Entry& entry : target.entries) {
      if (!names.contains(entry.name)) return MakeError(ErrorCode::kUnsupported, "a tensor has no place in the tree").WithTensor(entry.name);
    }
    for (const Constant& constant : constants_) {
      if (!names.contains(constant.entry.name)) return MakeError(ErrorCode::kUnsupported, "a value has no place in the tree").WithTensor(constant.entry.name);
    }
    return OkStatus();
  }

  /// File names follow from what is written, so that equal checkpoints have equal bytes.
  [[nodiscard]] std::string SeedOf(const Catalog& target) const {
    std::string text = zstd_level_ > 0 ? fmt::format("zstd {}\n", zstd_level_) : "";
    for (const Entry& entry : target.entries) text += fmt::format("{}\n{} {}\n", entry.name, DTypeName(entry.dtype), ToString(entry.shape));
    return Fingerprint(text);
  }

  [[nodiscard]] std::string DataName(std::string_view number) const { return "d/" + Fingerprint(fmt::format("{} {}", name_seed_, number)); }
  [[nodiscard]] std::string InItem(std::string_view path) const { return item_.empty() ? std::string(path) : io::JoinPath(item_, path); }

  /// Keys are at most 65535 bytes; files have the limits of the system.
  Status CheckName(const Entry& entry, const WriteGrid& grid) const {
    constexpr std::size_t kLongestKey = 65535;
    if (ocdbt_ && entry.name.size() + 200 > kLongestKey) {
      return MakeError(ErrorCode::kUnsupported, "a tensor's name is too long for a key").WithTensor(entry.name.substr(0, 200));
    }
    if (entry.name.empty() || entry.name.find('/') != std::string::npos) {
      return MakeError(ErrorCode::kUnsupported, "a tensor's name holds a \"/\", which separates keys in the store").WithTensor(entry.name);
    }
    if (!ocdbt_) CROSSDOCK_RETURN_IF_ERROR(io::CheckRelativePath(entry.name + "/" + KeyOf(entry.chunks.front(), grid, zarr3_)));
    return OkStatus();
  }

  Status PlaceInData(Entry& entry, const WriteGrid& grid, Catalog& target) {
    const std::int64_t align = zstd_level_ > 0 ? 1 : grid.object_bytes >= kAlignFrom ? kPage : kSmallAlign;
    const std::int64_t bytes = StoredBound(grid);
    for (Chunk& chunk : entry.chunks) {
      std::int64_t* size = target.files.empty() ? nullptr : &target.files.back().identity.size;
      if (size == nullptr || (*size > 0 && RoundUp(*size, align) > kFileBytes - std::min(bytes, kFileBytes))) {
        target.files.push_back({InItem(DataName(std::to_string(target.files.size()))), {}});
        size = &target.files.back().identity.size;
      }
      CROSSDOCK_RETURN_IF_ERROR(PlaceChunk(entry, chunk, static_cast<std::int32_t>(target.files.size() - 1), RoundUp(*size, align), grid));
      *size = chunk.bytes.offset + bytes;
    }
    return OkStatus();
  }

  Status PlaceInFiles(Entry& entry, const WriteGrid& grid, std::size_t json_bytes, Catalog& target) {
    metadata_files_.push_back({InItem(entry.name + (zarr3_ ? "/zarr.json" : "/.zarray")), {.size = static_cast<std::int64_t>(json_bytes)}});
    for (Chunk& chunk : entry.chunks) {
      target.files.push_back({InItem(entry.name + "/" + KeyOf(chunk, grid, zarr3_)), {.size = StoredBound(grid)}});
      CROSSDOCK_RETURN_IF_ERROR(PlaceChunk(entry, chunk, static_cast<std::int32_t>(target.files.size() - 1), 0, grid));
    }
    return OkStatus();
  }

  /// What a stored chunk takes, or may take.
  [[nodiscard]] std::int64_t StoredBound(const WriteGrid& grid) const { return zstd_level_ > 0 ? ZstdBound(grid.object_bytes) : grid.object_bytes; }

  Status PlaceChunk(const Entry& entry, Chunk& chunk, std::int32_t file, std::int64_t offset, const WriteGrid& grid) const {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(entry.dtype, chunk.box.sizes));
    chunk.file = file;
    chunk.bytes = {offset, zstd_level_ > 0 ? StoredBound(grid) : bytes};
    chunk.encoding = zstd_level_ > 0 ? ChunkEncoding::kEncoded : ChunkEncoding::kRaw;
    return OkStatus();
  }

  /// The sizes of what WriteMetadata writes; of nodes a bound.
  void Estimate(const Catalog& target) {
    if (ocdbt_) {
      std::int64_t keys = metadata_bytes_;
      for (const Entry& entry : target.entries) {
        // Key, numbers, and its part of the nodes above.
        keys += static_cast<std::int64_t>(entry.chunks.size() + 1) * (2 * static_cast<std::int64_t>(entry.name.size()) + 200);
      }
      metadata_files_.push_back({InItem(DataName("nodes")), {.size = keys + 4096}});
      metadata_files_.push_back({InItem(ocdbt::kManifestName), {.size = 512}});
    }
    std::map<std::string, Shape> shapes;
    for (const Entry& entry : target.entries) shapes.emplace(entry.name, entry.chunks.front().box.sizes);
    for (const Constant& constant : constants_) shapes.emplace(constant.entry.name, constant.entry.shape);
    for (const auto& [name, bytes] : SmallFiles(target, shapes)) metadata_files_.push_back({name, {.size = static_cast<std::int64_t>(bytes.size())}});
  }

  /// In the order in which they are written.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> SmallFiles(const Catalog& catalog, const std::map<std::string, Shape>& chunk_shapes) const {
    const Value& rows = catalog.objects.at("tree");
    Tree tree;
    tree.rows = rows;
    tree.use_ocdbt = ocdbt_;
    tree.use_zarr3 = zarr3_;
    tree.stores_zeros = true;
    const auto shape_of = [&](const std::string& name) { return chunk_shapes.at(name); };
    std::vector<std::pair<std::string, std::string>> out;
    const auto add = [&](std::string name, std::string bytes) {
      if (!bytes.empty()) out.emplace_back(std::move(name), std::move(bytes));
    };
    add(InItem("_METADATA"), PrintTree(tree, shape_of));
    add(InItem("_sharding"), ShardingJson(rows));
    add(InItem("_strings.json"), StringsJson(rows));
    add(InItem("array_metadatas/process_0"), ArrayMetadatasJson(rows, shape_of));
    if (!item_.empty() && commit_marker_) add(InItem("commit_success.txt"), std::string(kCommit));
    const auto custom = catalog.objects.find("custom_metadata");
    if (!step_files_) return out;
    const StepForm form{item_.empty() ? std::vector<std::string>() : std::vector<std::string>{item_}, handler_, commit_marker_};
    for (auto& file : StepFiles(form, custom == catalog.objects.end() ? Value::MakeDict() : custom->second)) out.push_back(std::move(file));
    return out;
  }

  Status WriteArrayFiles(const Catalog& placed, io::Storage& storage, const std::string& dir) const {
    for (const Entry& entry : placed.entries) {
      CROSSDOCK_ASSIGN_OR_RETURN(const WriteGrid grid, GridOf(entry));
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string json, ArrayJson(entry, grid, zarr3_, zstd_level_));
      const std::string path = InItem(entry.name + (zarr3_ ? "/zarr.json" : "/.zarray"));
      CROSSDOCK_RETURN_IF_ERROR(PutFile(storage, io::JoinPath(dir, path), json));
    }
    for (const Constant& constant : constants_) {
      CROSSDOCK_ASSIGN_OR_RETURN(const WriteGrid grid, GridOf(constant.entry));
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string json, ArrayJson(constant.entry, grid, zarr3_));
      const std::string array = io::JoinPath(dir, InItem(constant.entry.name));
      CROSSDOCK_RETURN_IF_ERROR(PutFile(storage, io::JoinPath(array, KeyOf(constant.entry.chunks.front(), grid, zarr3_)), constant.bytes));
      CROSSDOCK_RETURN_IF_ERROR(PutFile(storage, io::JoinPath(array, zarr3_ ? "zarr.json" : ".zarray"), json));
    }
    return OkStatus();
  }

  /// Nodes in a data file of their own, front to back; then the manifest.
  Status WriteDatabase(const Catalog& placed, io::Storage& storage, const std::string& dir) const {
    // The tables of nodes sort their files by name.
    std::vector<std::string> names;
    for (const FileRef& file : placed.files) names.push_back(file.path.substr(item_.empty() ? 0 : item_.size() + 1));
    std::vector<std::string> sorted = names;
    std::ranges::sort(sorted);
    std::vector<std::uint64_t> rank;
    for (const std::string& name : names) rank.push_back(static_cast<std::uint64_t>(std::ranges::lower_bound(sorted, name) - sorted.begin()));

    const std::string node_file = DataName("nodes");
    const std::string path = io::JoinPath(dir, InItem(node_file));
    CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, io::ParentPath(path)));
    CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage, path));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.Create(path));
    std::int64_t end = 0;
    const auto append = [&](std::string_view record) {
      const std::int64_t at = std::exchange(end, end + static_cast<std::int64_t>(record.size()));
      return file->WriteAt(at, std::as_bytes(std::span(record)));
    };
    ocdbt::TreeWriter tree(sorted, {.node_file = node_file}, append);
    for (const Entry* entry : InKeyOrder(placed)) CROSSDOCK_RETURN_IF_ERROR(AddKeys(*entry, rank, tree));
    CROSSDOCK_ASSIGN_OR_RETURN(ocdbt::Root root, tree.Finish());
    CROSSDOCK_RETURN_IF_ERROR(file->Sync());
    ocdbt::Manifest manifest;
    std::copy_n(name_seed_.begin(), manifest.uuid.size(), manifest.uuid.begin());
    root.commit_time_ns = 1;  // no clock: equal checkpoints have equal bytes
    manifest.newest = std::move(root);
    return PutFile(storage, io::JoinPath(dir, InItem(ocdbt::kManifestName)), ocdbt::WriteManifest(manifest));
  }

  /// "a.b/..." comes before "a/...": by the name with its slash.
  [[nodiscard]] std::vector<const Entry*> InKeyOrder(const Catalog& placed) const {
    std::vector<std::pair<std::string, const Entry*>> order;
    for (const Entry& entry : placed.entries) order.emplace_back(entry.name + "/", &entry);
    for (const Constant& constant : constants_) order.emplace_back(constant.entry.name + "/", &constant.entry);
    std::ranges::sort(order);
    std::vector<const Entry*> out;
    for (const auto& [key, entry] : order) out.push_back(entry);
    return out;
  }

  Status AddKeys(const Entry& entry, const std::vector<std::uint64_t>& rank, ocdbt::TreeWriter& tree) const {
    CROSSDOCK_ASSIGN_OR_RETURN(const WriteGrid grid, GridOf(entry));
    const bool encoded = zstd_level_ > 0 && FindConstant(entry.name) == nullptr;
    CROSSDOCK_ASSIGN_OR_RETURN(std::string json, ArrayJson(entry, grid, zarr3_, encoded ? zstd_level_ : 0));
    std::vector<std::pair<std::string, const Chunk*>> keys;
    keys.emplace_back(zarr3_ ? "zarr.json" : ".zarray", nullptr);
    for (const Chunk& chunk : entry.chunks) keys.emplace_back(KeyOf(chunk, grid, zarr3_), &chunk);
    std::ranges::sort(keys);
    for (const auto& [key, chunk] : keys) {
      const std::string whole = entry.name + "/" + key;
      if (chunk == nullptr) {
        CROSSDOCK_RETURN_IF_ERROR(tree.AddInline(whole, json));
      } else if (const Constant* constant = FindConstant(entry.name)) {
        CROSSDOCK_RETURN_IF_ERROR(tree.AddInline(whole, constant->bytes));
      } else {
        CROSSDOCK_RETURN_IF_ERROR(tree.Add(whole, {rank[static_cast<std::size_t>(chunk->file)], chunk->bytes.offset, encoded ? chunk->bytes.length : grid.object_bytes}));
      }
    }
    return OkStatus();
  }

  bool laid_out_ = false;
  std::string item_, handler_, name_seed_;
  bool ocdbt_ = true;
  bool zarr3_ = true;
  bool commit_marker_ = true;
  bool step_files_ = true;               ///< false: whoever writes the step's other items does
  int zstd_level_ = 0;                   ///< 0: chunks are stored as they are
  std::vector<Constant> constants_;      ///< sorted by name
  std::int64_t metadata_bytes_ = 0;
  std::vector<FileRef> metadata_files_;
};

}  // namespace

std::unique_ptr<CheckpointWriter> MakeOrbaxWriter() { return std::make_unique<OrbaxWriter>(); }

}  // namespace crossdock::formats::orbax
