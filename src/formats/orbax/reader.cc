// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/dcp/object_files.h"
#include "formats/ocdbt/database.h"
#include "formats/orbax/array_store.h"
#include "formats/orbax/layout.h"
#include "formats/orbax/orbax.h"
#include "formats/orbax/scalars.h"
#include "formats/orbax/tree.h"
#include "formats/zarr/chunk_stream.h"
#include "formats/zarr/shard_index.h"

namespace crossdock::formats::orbax {
namespace {

constexpr std::int64_t kLargestJson = std::int64_t{256} << 20U;
constexpr std::size_t kMostNamed = 8;
constexpr const char* kMetadataItem = "custom_metadata";

/// What of an entry the catalog has no word for.
struct EntryStore {
  zarr::ArrayMetadata metadata;
  std::map<std::int32_t, std::string> inlined;
  bool zeros = false;                       ///< a part that is not stored is zero
};

class OrbaxReader final : public CheckpointReader {
 public:
  OrbaxReader(io::Storage& storage, Catalog catalog, std::vector<EntryStore> stores)
      : storage_(storage), catalog_(std::move(catalog)), stores_(std::move(stores)) {}

  [[nodiscard]] const Catalog& catalog() const override { return catalog_; }

  /// The index of a shard that holds one chunk is looked at here, once.
  [[nodiscard]] Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    const Entry& e = catalog_.entries.at(static_cast<std::size_t>(entry));
    const Chunk& c = e.chunks.at(static_cast<std::size_t>(chunk));
    const zarr::ArrayMetadata& metadata = stores_[static_cast<std::size_t>(entry)].metadata;
    if (c.encoding == ChunkEncoding::kEncoded) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(e.dtype, c.box.sizes));
      return ByteRange{0, bytes};
    }
    if (!metadata.sharding || metadata.sharding->inner != metadata.chunk_shape) return c.bytes;
    {
      const std::lock_guard lock(mutex_);
      if (located_.contains({entry, chunk})) return c.bytes;
    }
    const std::string path = io::JoinPath(catalog_.root, catalog_.files[static_cast<std::size_t>(c.file)].path);
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.OpenRead(path));
    auto range = zarr::LocateInLoneShard(*metadata.sharding, *file, c.bytes);
    if (!range) return std::move(range).error().WithPath(path).WithTensor(e.name);
    if (*range == c.bytes) {
      const std::lock_guard lock(mutex_);
      located_.emplace(entry, chunk);
    }
    return range;
  }

  [[nodiscard]] Result<std::unique_ptr<ElementStream>> OpenEncoded(std::int32_t entry, std::int32_t chunk,
                                                                   const io::ReadFile& file) const override {
    const EntryStore& store = stores_.at(static_cast<std::size_t>(entry));
    const Chunk& c = catalog_.entries[static_cast<std::size_t>(entry)].chunks.at(static_cast<std::size_t>(chunk));
    const auto inlined = store.inlined.find(chunk);
    const zarr::StoredBytes stored = inlined != store.inlined.end() ? zarr::StoredBytes(inlined->second) : zarr::StoredBytes(file, c.bytes);
    auto stream = zarr::OpenChunk(store.metadata, c.box, stored, store.zeros && store.metadata.zero_fill);
    if (!stream) return std::move(stream).error().WithPath(file.path()).WithTensor(catalog_.entries[static_cast<std::size_t>(entry)].name);
    return stream;
  }

  [[nodiscard]] Result<Value> LoadObject(const ObjectRef& ref) const override {
    return MakeError(ErrorCode::kUnsupported, "Orbax items hold no objects beside their tree").WithTensor(ref.name);
  }

 private:
  io::Storage& storage_;
  Catalog catalog_;
  std::vector<EntryStore> stores_;
  mutable std::mutex mutex_;
  mutable std::set<std::pair<std::int32_t, std::int32_t>> located_;
};

/// Makes the catalog of one item, or of several under names that begin with the item's.
class Builder {
 public:
  Builder(io::Storage& storage, ItemPlace place) : storage_(storage), place_(std::move(place)) {
    catalog_.format = "orbax";
    catalog_.root = place_.root;
    catalog_.step = place_.step;
  }

  Result<std::unique_ptr<CheckpointReader>> Build() {
    if (place_.together.empty()) CROSSDOCK_RETURN_IF_ERROR(ReadItem());
    for (const std::string& item : place_.together) {
      place_.item = item;
      prefix_ = item + ".";
      CROSSDOCK_RETURN_IF_ERROR(ReadItem());
    }
    CROSSDOCK_RETURN_IF_ERROR(ReadStepFile());
    Sort();
    CROSSDOCK_RETURN_IF_ERROR(ReadCounters());
    CROSSDOCK_RETURN_IF_ERROR(dcp::LoadHfFolder(storage_, place_.root, catalog_));
    Describe();
    return std::unique_ptr<CheckpointReader>(
        std::make_unique<OrbaxReader>(storage_, std::move(catalog_), std::move(stores_)));
  }

 private:
  Status ReadItem() {
    names_.clear();
    first_ = catalog_.entries.size();
    CROSSDOCK_RETURN_IF_ERROR(ReadTree());
    CROSSDOCK_RETURN_IF_ERROR(ReadArrays());
    return CheckComplete();
  }

  [[nodiscard]] std::string PathOf(std::string_view name) const { return io::JoinPath(place_.dir(), name); }

  Result<Value> ReadJson(const std::string& path) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage_, path, kLargestJson));
    auto json = ParseJson(text);
    if (!json) return std::move(json).error().WithPath(path);
    return json;
  }

  Status ReadTree() {
    const std::string path = PathOf("_METADATA");
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string text, io::ReadSmallFile(storage_, path, kLargestJson));
    auto tree = ParseTree(text);
    if (!tree) return std::move(tree).error().WithPath(path);
    tree_ = *std::move(tree);
    CROSSDOCK_ASSIGN_OR_RETURN(const Value strings, OptionalJson(PathOf("_strings.json")));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto extensions, ReadExtensions());
    for (Value& row : *tree_.rows.mutable_sequence()) {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string name, NameOfPath(*row.Find("path")));
      const std::string type = *row.GetString("value_type");
      if (type == "string") {
        const Value* text_value = strings.as_dict() != nullptr ? strings.Find(name) : nullptr;
        if (text_value == nullptr || text_value->as_string() == nullptr) {
          return MakeError(ErrorCode::kIncomplete, "the text of a string leaf is missing").WithPath(PathOf("_strings.json")).WithTensor(name);
        }
        row.Set("text", *text_value);
      } else if (HasArray(type)) {
        if (!names_.insert(name).second) {
          return MakeError(ErrorCode::kUnsupported, "two leaves of the tree have one name in the store").WithPath(path).WithTensor(name);
        }
        const auto extension = extensions.find(name);
        if (extension != extensions.end()) row.Set("ext_metadata", extension->second);
      }
      if (prefix_.empty()) {
        rows_.push_back(std::move(row));
        continue;
      }
      ValueList keys = {Value(place_.item)};
      const ValueList& below = *row.Find("path")->as_sequence();
      keys.insert(keys.end(), below.begin(), below.end());
      row.Set("path", Value::MakeList(std::move(keys)));
      rows_.push_back(std::move(row));
    }
    return OkStatus();
  }

  /// Null when the file is not there.
  Result<Value> OptionalJson(const std::string& path) {
    if (!io::Exists(storage_, path)) return Value();
    return ReadJson(path);
  }

  /// What array_metadatas/process_<k> say beyond the tree: the kind of typed PRNG keys.
  Result<std::map<std::string, Value>> ReadExtensions() {
    std::map<std::string, Value> out;
    const std::string dir = PathOf("array_metadatas");
    if (!io::Exists(storage_, dir)) return out;
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage_.List(dir));
    for (const io::DirEntry& entry : entries) {
      if (entry.kind != io::FileKind::kFile || !entry.name.starts_with("process_")) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(const Value json, ReadJson(io::JoinPath(dir, entry.name)));
      const Value* list = json.as_dict() != nullptr ? json.Find("array_metadatas") : nullptr;
      if (list == nullptr || list->as_sequence() == nullptr) continue;
      for (const Value& item : *list->as_sequence()) {
        const std::optional<std::string> name = item.GetString("array_metadata.param_name");
        const Value* extension = item.FindPath("array_metadata.ext_metadata");
        if (name && extension != nullptr && !extension->is_null()) out.emplace(*name, *extension);
      }
    }
    return out;
  }

  Status ReadArrays() {
    // Before there were words for it, the files said it.
    ocdbt_ = tree_.use_ocdbt.value_or(io::Exists(storage_, PathOf(ocdbt::kManifestName)));
    const StoreForm form{tree_.use_zarr3.value_or(false), !tree_.stores_zeros};
    StoreFiles files(storage_, catalog_, place_.item);
    const auto take = [this](StoredArray array) { return Take(std::move(array)); };
    if (ocdbt_) return ReadOcdbtArrays(files, names_, form, take, &others_);
    return ReadDirectoryArrays(files, names_, form, take);
  }

  Status Take(StoredArray array) {
    if (array.metadata.nibbles) ++int4_;
    catalog_.entries.push_back({prefix_ + array.name, Slot::kParam, array.metadata.dtype, array.metadata.shape, std::move(array.placed.chunks)});
    stores_.push_back({std::move(array.metadata), std::move(array.placed.inlined), !tree_.stores_zeros});
    return OkStatus();
  }

  Status CheckComplete() {
    std::set<std::string> missing = names_;
    for (std::size_t i = first_; i < catalog_.entries.size(); ++i) missing.erase(catalog_.entries[i].name.substr(prefix_.size()));
    if (missing.empty()) return OkStatus();
    const bool aggregate = io::Exists(storage_, PathOf("checkpoint"));
    return MakeError(aggregate ? ErrorCode::kUnsupported : ErrorCode::kIncomplete,
                     aggregate ? "leaves of the tree lie in a msgpack file (`aggregate`), which is not read" : "arrays of the tree are missing")
        .WithPath(aggregate ? PathOf("checkpoint") : place_.dir())
        .WithExpected("an array for each leaf").WithFound("none for " + NamesOf(missing));
  }

  static std::string NamesOf(const std::set<std::string>& names) {
    std::string out;
    std::size_t n = 0;
    for (const std::string& name : names) {
      if (n++ == kMostNamed) return out + " and " + std::to_string(names.size() - kMostNamed) + " more";
      out += (out.empty() ? "`" : ", `") + Printable(name) + "`";
    }
    return out;
  }

  Status ReadStepFile() {
    Value about = Value::MakeDict();
    about.Set("item", place_.item.empty() ? "" : place_.item);
    if (!place_.together.empty()) {
      ValueList items;
      for (const std::string& item : place_.together) items.emplace_back(item);
      about.Set("items", Value::MakeList(std::move(items)));
      CROSSDOCK_RETURN_IF_ERROR(ReadMetadataItem());
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const Value json, OptionalJson(io::JoinPath(place_.root, "_CHECKPOINT_METADATA")));
    if (json.as_dict() != nullptr) {
      const Value* custom = json.Find("custom_metadata");
      if (custom != nullptr && custom->as_dict() != nullptr && !custom->as_dict()->items.empty()) catalog_.objects["custom_metadata"] = *custom;
      const Value* handlers = json.Find("item_handlers");
      const Value* handler = handlers;
      if (handlers != nullptr && handlers->as_dict() != nullptr) handler = handlers->Find(place_.item);
      if (handler != nullptr && handler->as_string() != nullptr) about.Set("handler", *handler);
    }
    about.Set("ocdbt", ocdbt_);
    about.Set("zarr3", tree_.use_zarr3.value_or(false));
    catalog_.objects["orbax"] = std::move(about);
    catalog_.objects["tree"] = Value::MakeList(std::move(rows_));
    return OkStatus();
  }

  /// Before steps had custom metadata of their own, Tunix saved it as an item.
  Status ReadMetadataItem() {
    CROSSDOCK_ASSIGN_OR_RETURN(Value json, OptionalJson(io::JoinPath(place_.root, io::JoinPath(kMetadataItem, "metadata"))));
    if (json.as_dict() != nullptr && !json.as_dict()->items.empty()) catalog_.objects["custom_metadata"] = std::move(json);
    return OkStatus();
  }

  /// Entries and what belongs to them.
  void Sort() {
    std::vector<std::size_t> order(catalog_.entries.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return catalog_.entries[a].name < catalog_.entries[b].name; });
    std::vector<Entry> entries;
    std::vector<EntryStore> stores;
    for (const std::size_t i : order) {
      entries.push_back(std::move(catalog_.entries[i]));
      stores.push_back(std::move(stores_[i]));
    }
    catalog_.entries = std::move(entries);
    stores_ = std::move(stores);
  }

  /// Counters are small and decide things: they are read at once; of Tunix's items also what a record keeps by value.
  Status ReadCounters() {
    Value rows = Value::MakeDict();
    for (std::size_t i = 0; i < catalog_.entries.size(); ++i) {
      const Entry& entry = catalog_.entries[i];
      const bool wanted = IsCounter(entry) || (!place_.together.empty() && IsRecorded(entry));
      if (!wanted || entry.chunks.size() != 1) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t size, ByteSize(entry.dtype, entry.shape));
      std::vector<std::byte> bytes(static_cast<std::size_t>(size));
      CROSSDOCK_RETURN_IF_ERROR(ReadElements(entry, stores_[i], bytes));
      rows.Set(entry.name, ValueRow(entry, bytes));
    }
    catalog_.objects["scalars"] = std::move(rows);
    return OkStatus();
  }

  Status ReadElements(const Entry& entry, const EntryStore& store, std::span<std::byte> out) {
    const Chunk& chunk = entry.chunks.front();
    const std::string path = io::JoinPath(catalog_.root, catalog_.files[static_cast<std::size_t>(chunk.file)].path);
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.OpenRead(path));
    const auto inlined = store.inlined.find(0);
    const zarr::StoredBytes stored = inlined != store.inlined.end() ? zarr::StoredBytes(inlined->second) : zarr::StoredBytes(*file, chunk.bytes);
    auto stream = zarr::OpenChunk(store.metadata, chunk.box, stored, store.zeros && store.metadata.zero_fill);
    if (!stream) return std::move(stream).error().WithPath(path).WithTensor(entry.name);
    Status read = (*stream)->Read(out);
    if (!read) return std::move(read).error().WithPath(path).WithTensor(entry.name);
    return OkStatus();
  }

  void Describe() {
    for (const std::string& other : place_.others) {
      const bool read = other == kMetadataItem && !place_.together.empty();
      if (other != "descriptor" && other != "hf" && !read) catalog_.notices.push_back("`" + Printable(other) + "` beside the item is not read");
    }
    if (!others_.empty()) catalog_.notices.push_back("arrays that the tree does not name are left out: " + NamesOf(others_));
    if (int4_ > 0) catalog_.notices.push_back(std::to_string(int4_) + " int4 arrays are read as I8");
  }

  io::Storage& storage_;
  ItemPlace place_;
  Catalog catalog_;
  std::vector<EntryStore> stores_;
  ValueList rows_;
  std::string prefix_;                      ///< of the item that is read
  std::size_t first_ = 0;                   ///< of its entries
  Tree tree_;
  std::set<std::string> names_, others_;
  bool ocdbt_ = true;
  int int4_ = 0;
};

}  // namespace

Result<std::unique_ptr<CheckpointReader>> OpenOrbax(io::Storage& storage, const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(ItemPlace place, FindItem(storage, path));
  return Builder(storage, std::move(place)).Build();
}

}  // namespace crossdock::formats::orbax
