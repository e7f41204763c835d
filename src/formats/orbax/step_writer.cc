// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "formats/orbax/orbax.h"
#include "formats/orbax/step_files.h"

namespace crossdock::formats::orbax {
namespace {

/// One item of the step: a writer of its own, and what of the step's catalog is its.
struct ItemPart {
  std::unique_ptr<CheckpointWriter> writer = MakeOrbaxWriter();
  std::size_t entries = 0, files = 0;  ///< how many; those of an item lie together, in the order of the items
};

std::string PrefixOf(const std::string& item) { return item + "."; }

/// Rows without the item's name, which their paths begin with.
Value RowsOf(const Value& rows, const std::string& item) {
  Value out = Value::MakeList();
  if (rows.as_sequence() == nullptr) return out;
  for (const Value& row : *rows.as_sequence()) {
    const ValueList* path = row.Find("path") == nullptr ? nullptr : row.Find("path")->as_sequence();
    CROSSDOCK_CHECK(path != nullptr && !path->empty());  // whoever makes the tree owes it
    if (path->front().as_string() == nullptr || *path->front().as_string() != item) continue;
    Value own = row;
    own.Set("path", Value::MakeList(ValueList(path->begin() + 1, path->end())));
    out.mutable_sequence()->push_back(std::move(own));
  }
  return out;
}

Value ScalarsOf(const Value& scalars, const std::string& prefix) {
  Value out = Value::MakeDict();
  if (scalars.as_dict() == nullptr) return out;
  for (const auto& [name, row] : scalars.as_dict()->items) {
    if (name.as_string() != nullptr && name.as_string()->starts_with(prefix)) out.Set(name.as_string()->substr(prefix.size()), row);
  }
  return out;
}

class StepWriter final : public CheckpointWriter {
 public:
  Result<Placement> LayOut(Catalog target) override {
    CROSSDOCK_CHECK(parts_.empty());
    CROSSDOCK_RETURN_IF_ERROR(ReadRequest(target));
    CROSSDOCK_RETURN_IF_ERROR(CheckNames(target));
    std::vector<std::vector<Entry>> of_item(parts_.size());
    for (Entry& entry : target.entries) {
      const std::size_t item = *ItemOf(entry.name);
      entry.name.erase(0, items_[item].size() + 1);
      of_item[item].push_back(std::move(entry));
    }
    target.format = "orbax";
    target.entries.clear();
    target.files.clear();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Catalog own = Objects(target, items_[i]);
      own.entries = std::move(of_item[i]);
      CROSSDOCK_ASSIGN_OR_RETURN(Placement placed, parts_[i].writer->LayOut(std::move(own)));
      Add(std::move(placed.catalog), items_[i], &parts_[i], &target);
    }
    for (const auto& [name, bytes] : StepFiles(form(), CustomMetadata(target))) metadata_files_.push_back({name, {.size = static_cast<std::int64_t>(bytes.size())}});
    return Placement{std::move(target), {}, false};
  }

  Result<std::vector<Frame>> Seal(const Catalog& /*placed*/, std::int32_t /*entry*/, std::int32_t /*chunk*/, std::uint32_t /*crc32*/) const override {
    return std::vector<Frame>{};
  }

  /// The items are compressed alike.
  Result<std::string> Encode(const Catalog& placed, std::int32_t entry, std::int32_t chunk, std::span<const std::byte> elements) const override {
    return parts_.front().writer->Encode(placed, entry, chunk, elements);
  }

  Status WriteMetadata(const Catalog& placed, io::Storage& storage, const std::string& dir) override {
    std::size_t entry = 0;
    std::size_t file = 0;
    for (std::size_t item = 0; item < parts_.size(); ++item) {
      const ItemPart& part = parts_[item];
      Catalog own = Objects(placed, items_[item]);
      own.files.assign(placed.files.begin() + static_cast<std::ptrdiff_t>(file), placed.files.begin() + static_cast<std::ptrdiff_t>(file + part.files));
      for (std::size_t i = 0; i < part.entries; ++i) {
        own.entries.push_back(placed.entries[entry + i]);
        own.entries.back().name.erase(0, items_[item].size() + 1);
        for (Chunk& chunk : own.entries.back().chunks) chunk.file -= static_cast<std::int32_t>(file);
      }
      CROSSDOCK_RETURN_IF_ERROR(part.writer->WriteMetadata(own, storage, dir));
      entry += part.entries;
      file += part.files;
    }
    for (const auto& [name, bytes] : StepFiles(form(), CustomMetadata(placed))) CROSSDOCK_RETURN_IF_ERROR(PutFile(storage, io::JoinPath(dir, name), bytes));
    return OkStatus();
  }

  std::vector<FileRef> MetadataFiles() const override { return metadata_files_; }

 private:
  Status ReadRequest(const Catalog& target) {
    const auto at = target.objects.find("orbax");
    about_ = at == target.objects.end() ? Value::MakeDict() : at->second;
    const Value* items = about_.Find("items");
    CROSSDOCK_CHECK(items != nullptr && items->as_sequence() != nullptr && !items->as_sequence()->empty());  // as orbax.h asks
    for (const Value& item : *items->as_sequence()) {
      CROSSDOCK_CHECK(item.as_string() != nullptr);
      items_.push_back(*item.as_string());
    }
    std::ranges::sort(items_, {}, PrefixOf);  // entries are sorted by their whole names
    parts_.resize(items_.size());
    handler_ = about_.GetString("handler").value_or(std::string(kPyTreeHandler));
    commit_marker_ = about_.GetBool("commit_marker").value_or(true);
    return OkStatus();
  }

  /// The item that a name begins with, by its number.
  [[nodiscard]] std::optional<std::size_t> ItemOf(const std::string& name) const {
    const auto at = std::ranges::find_if(items_, [&](const std::string& item) { return name.starts_with(PrefixOf(item)); });
    return at == items_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(at - items_.begin()));
  }

  [[nodiscard]] StepForm form() const { return {items_, handler_, commit_marker_}; }

  /// Every tensor and every value is of an item.
  [[nodiscard]] Status CheckNames(const Catalog& target) const {
    for (const Entry& entry : target.entries) {
      if (!ItemOf(entry.name)) return MakeError(ErrorCode::kUnsupported, "a tensor belongs to no item of the step").WithTensor(entry.name);
    }
    const auto scalars = target.objects.find("scalars");
    if (scalars == target.objects.end() || scalars->second.as_dict() == nullptr) return OkStatus();
    for (const auto& [name, row] : scalars->second.as_dict()->items) {
      if (name.as_string() != nullptr && !ItemOf(*name.as_string())) return MakeError(ErrorCode::kUnsupported, "a value belongs to no item of the step").WithTensor(*name.as_string());
    }
    return OkStatus();
  }

  /// What a writer of one item is told.
  [[nodiscard]] Catalog Objects(const Catalog& step, const std::string& item) const {
    Catalog own;
    const auto object = [&](const char* key) {
      const auto at = step.objects.find(key);
      return at == step.objects.end() ? Value() : at->second;
    };
    own.objects["tree"] = RowsOf(object("tree"), item);
    own.objects["scalars"] = ScalarsOf(object("scalars"), PrefixOf(item));
    Value about = about_;
    about.Erase("items");
    about.Set("item", item);
    about.Set("step_files", false);
    own.objects["orbax"] = std::move(about);
    return own;
  }

  void Add(Catalog own, const std::string& item, ItemPart* part, Catalog* step) {
    part->entries = own.entries.size();
    part->files = own.files.size();
    const auto base = static_cast<std::int32_t>(step->files.size());
    for (Entry& entry : own.entries) {
      entry.name.insert(0, PrefixOf(item));
      for (Chunk& chunk : entry.chunks) chunk.file += base;
      step->entries.push_back(std::move(entry));
    }
    std::ranges::move(own.files, std::back_inserter(step->files));
    for (const FileRef& file : part->writer->MetadataFiles()) metadata_files_.push_back(file);
  }

  [[nodiscard]] static Value CustomMetadata(const Catalog& step) {
    const auto at = step.objects.find("custom_metadata");
    return at == step.objects.end() ? Value::MakeDict() : at->second;
  }

  Value about_;
  std::vector<std::string> items_;
  std::string handler_;
  bool commit_marker_ = true;
  std::vector<ItemPart> parts_;
  std::vector<FileRef> metadata_files_;
};

}  // namespace

std::unique_ptr<CheckpointWriter> MakeOrbaxStepWriter() { return std::make_unique<StepWriter>(); }

}  // namespace crossdock::formats::orbax
