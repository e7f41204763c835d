// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/database.h"

#include <algorithm>

#include "formats/ocdbt/envelope.h"

namespace crossdock::formats::ocdbt {
namespace {

constexpr std::int64_t kLargestManifest = 16 << 20;
constexpr std::size_t kMostNodes = std::size_t{1} << 20U;
constexpr std::int64_t kMostKeys = std::int64_t{1} << 26U;
constexpr std::int64_t kLargestValue = 64 << 20;  // of those that are read here: metadata

bool IsNumbered(std::string_view name) {
  constexpr std::string_view kPrefix = "manifest.";
  constexpr std::size_t kDigits = 16;
  return name.size() == kPrefix.size() + kDigits && name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

Result<Manifest> LoadManifest(io::Storage& storage, const std::string& path) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string record, io::ReadSmallFile(storage, path, kLargestManifest));
  auto manifest = ReadManifest(record);
  if (!manifest) return std::move(manifest).error().WithPath(path);
  return manifest;
}

}  // namespace

Result<Database> Database::Open(io::Storage& storage, const std::string& dir) {
  const std::string path = io::JoinPath(dir, kManifestName);
  auto manifest = LoadManifest(storage, path);
  if (!manifest && manifest.error().code == ErrorCode::kIncomplete) {
    return MakeError(ErrorCode::kIncomplete, "an OCDBT database has no manifest: its save was not finished")
        .WithPath(dir).WithExpected("a file `manifest.ocdbt`");
  }
  if (!manifest) return std::move(manifest).error();
  if (manifest->numbered) {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage.List(dir));
    std::string newest;
    for (const io::DirEntry& entry : entries) {
      if (IsNumbered(entry.name)) newest = std::max(newest, entry.name);
    }
    if (newest.empty()) {
      return MakeError(ErrorCode::kIncomplete, "an OCDBT database has no numbered manifest: nothing was written to it")
          .WithPath(dir).WithExpected("files `manifest.<16 digits>`");
    }
    CROSSDOCK_ASSIGN_OR_RETURN(*manifest, LoadManifest(storage, io::JoinPath(dir, newest)));
    if (!manifest->newest) return Malformed("a numbered manifest without a generation").WithPath(io::JoinPath(dir, newest));
  }
  return Database(storage, dir, *std::move(manifest->newest));
}

Result<std::string> Database::Read(const Place& place) {
  if (open_ == nullptr || open_path_ != place.path) {
    CROSSDOCK_ASSIGN_OR_RETURN(open_, storage_->OpenRead(io::JoinPath(dir_, place.path)));
    open_path_ = place.path;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, open_->Info());
  if (place.bytes.offset > info.size || place.bytes.length > info.size - place.bytes.offset) {
    return MakeError(ErrorCode::kCorrupt, "an OCDBT record lies beyond the end of its file")
        .WithPath(open_->path()).WithOffset(place.bytes.offset)
        .WithExpected(std::to_string(place.bytes.length) + " bytes").WithFound("a file of " + std::to_string(info.size) + " bytes");
  }
  std::string out(static_cast<std::size_t>(place.bytes.length), '\0');
  CROSSDOCK_RETURN_IF_ERROR(open_->ReadAt(place.bytes.offset, std::as_writable_bytes(std::span(out))));
  return out;
}

Result<std::string> Database::ReadValue(const Item& item) {
  if (item.inlined) return std::string(*item.inlined);
  if (item.place.bytes.length > kLargestValue) {
    return MakeError(ErrorCode::kUnsupported, "a metadata value of an OCDBT database is too large")
        .WithPath(io::JoinPath(dir_, item.place.path)).WithExpected("at most 64 MiB").WithFound(std::to_string(item.place.bytes.length) + " bytes");
  }
  return Read(item.place);
}

Status Database::Visit(const Visitor& visit) {
  visited_.clear();
  last_key_.reset();
  keys_ = 0;
  if (root_.empty()) return OkStatus();
  return VisitNode(root_.file, {root_.file.path(), {root_.offset, root_.length}}, root_.height, "", visit);
}

Status Database::VisitNode(const DataFile& file, const Place& place, int height, const std::string& prefix, const Visitor& visit) {
  const auto where = [&](Error error) {
    if (!error.path.empty()) return error;
    return Error(std::move(error).WithPath(io::JoinPath(dir_, place.path)).WithOffset(place.bytes.offset));
  };
  if (!visited_.emplace(place.path, place.bytes.offset).second) return where(Malformed("a node that is reached twice"));
  if (visited_.size() > kMostNodes) return where(MakeError(ErrorCode::kUnsupported, "an OCDBT database has too many nodes"));
  if (place.bytes.length > kLargestBody) return where(MakeError(ErrorCode::kUnsupported, "a node of an OCDBT database is too large"));
  std::optional<Node> node;
  {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string record, Read(place));
    auto read = ReadNode(record, file.base);
    if (!read) return where(std::move(read).error());
    node = *std::move(read);
  }
  if (node->height != height) {
    return where(Malformed("a node at another height").WithExpected(std::to_string(height)).WithFound(std::to_string(node->height)));
  }
  if (height == 0) {
    Status leaf = VisitLeaf(*node, place, prefix, visit);
    return leaf ? leaf : Status(where(std::move(leaf).error()));
  }
  for (const ChildEntry& child : node->children) {
    const DataFile& child_file = node->files[static_cast<std::size_t>(child.extent.file)];
    if (child_file.relative.empty()) return where(Malformed("a data file without a name"));
    const std::string shared = prefix + child.key.substr(0, static_cast<std::size_t>(child.shared));
    CROSSDOCK_RETURN_IF_ERROR(VisitNode(child_file, {child_file.path(), {child.extent.offset, child.extent.length}}, height - 1, shared, visit));
  }
  return OkStatus();
}

Status Database::VisitLeaf(const Node& node, const Place& place, const std::string& prefix, const Visitor& visit) {
  for (const LeafEntry& entry : node.leaves) {
    std::string key = prefix + entry.key;
    if (last_key_ && key <= *last_key_) return Malformed("keys that do not ascend from node to node").WithFound("`" + Printable(key) + "`");
    if (++keys_ > kMostKeys) return MakeError(ErrorCode::kUnsupported, "an OCDBT database has too many keys");
    last_key_ = std::move(key);
    Item item{*last_key_, place, {}};
    if (entry.inlined) {
      item.inlined = *entry.inlined;
    } else {
      const DataFile& file = node.files[static_cast<std::size_t>(entry.extent.file)];
      if (file.relative.empty()) return Malformed("a data file without a name");
      item.place = {file.path(), {entry.extent.offset, entry.extent.length}};
    }
    CROSSDOCK_RETURN_IF_ERROR(visit(item));
  }
  return OkStatus();
}

}  // namespace crossdock::formats::ocdbt
