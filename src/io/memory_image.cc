// SPDX-License-Identifier: Apache-2.0
#include "io/memory_image.h"

#include <algorithm>
#include <random>

#include "base/check.h"

namespace crossdock::io {
namespace {

constexpr std::uint64_t kRoot = 1;

/// The parts of a path; "", "." and a leading "/" say nothing.
std::vector<std::string_view> Parts(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".") parts.push_back(part);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return parts;
}

Error NotThere(const std::string& path) {
  return MakeError(ErrorCode::kIncomplete, "no such file or directory").WithPath(path);
}

void ApplyData(std::string& data, const MemoryOperation& op) {
  const auto offset = static_cast<std::size_t>(op.offset);
  if (op.kind == MemoryOperation::Kind::kTruncate) {
    data.resize(offset, '\0');
    return;
  }
  if (data.size() < offset + op.data.size()) data.resize(offset + op.data.size(), '\0');
  data.replace(offset, op.data.size(), op.data);
}

}  // namespace

MemoryImage::MemoryImage() { nodes_[kRoot].is_dir = true; }

void MemoryImage::StartTracking() {
  tracking_ = true;
  for (auto& [inode, node] : nodes_) {
    node.durable_data = node.data;
    node.durable_names = node.names;
    node.unsynced_data.clear();
    node.unsynced_names.clear();
  }
}

std::uint64_t MemoryImage::Find(std::string_view path) const {
  std::uint64_t at = kRoot;
  for (const std::string_view part : Parts(path)) {
    const Node& dir = nodes_.at(at);
    const auto found = dir.names.find(std::string(part));
    if (found == dir.names.end()) return 0;
    at = found->second;
  }
  return at;
}

const MemoryImage::Node* MemoryImage::Get(std::uint64_t inode) const {
  const auto found = nodes_.find(inode);
  return found == nodes_.end() ? nullptr : &found->second;
}

std::int64_t MemoryImage::TotalBytes() const {
  std::int64_t total = 0;
  for (const auto& [inode, node] : nodes_) total += static_cast<std::int64_t>(node.data.size());
  return total;
}

MemoryImage::Place MemoryImage::PlaceOf(std::string_view path) {
  const std::vector<std::string_view> parts = Parts(path);
  if (parts.empty()) return {};
  const std::uint64_t dir = Find(ParentPath(path));
  if (dir == 0 || !nodes_.at(dir).is_dir) return {};
  return {&nodes_.at(dir), std::string(parts.back())};
}

void MemoryImage::NamesChanged(Node& dir) {
  dir.mtime_ns = ++clock_;
  if (tracking_) dir.unsynced_names.push_back(dir.names);
}

Status MemoryImage::Apply(const MemoryOperation& op) {
  using Kind = MemoryOperation::Kind;
  if (op.kind != Kind::kWrite && op.kind != Kind::kTruncate && op.kind != Kind::kSync) return ApplyToNames(op);
  Node& node = nodes_.at(op.inode);
  if (op.kind == Kind::kSync) {
    if (tracking_) {
      node.durable_data = node.data;
      node.unsynced_data.clear();
    }
    return OkStatus();
  }
  ApplyData(node.data, op);
  node.mtime_ns = ++clock_;
  if (tracking_) node.unsynced_data.push_back(op);
  return OkStatus();
}

Status MemoryImage::ApplyToNames(const MemoryOperation& op) {
  using Kind = MemoryOperation::Kind;
  if (op.kind == Kind::kSyncDir) {
    const std::uint64_t inode = Find(op.path);
    if (inode == 0 || !nodes_.at(inode).is_dir) return NotThere(op.path);
    Node& dir = nodes_.at(inode);
    if (tracking_) {
      dir.durable_names = dir.names;
      dir.unsynced_names.clear();
    }
    return OkStatus();
  }
  const Place place = PlaceOf(op.path);
  if (place.dir == nullptr) {
    const bool makes = op.kind == Kind::kCreate || op.kind == Kind::kMakeDir;
    Error error = NotThere(op.path);
    if (makes) error.code = ErrorCode::kIo;
    return error;
  }
  const auto found = place.dir->names.find(place.name);
  const bool present = found != place.dir->names.end();
  if (op.kind == Kind::kCreate || op.kind == Kind::kMakeDir) {
    if (present) return MakeError(ErrorCode::kIo, "the name exists already").WithPath(op.path);
    const std::uint64_t inode = next_inode_++;
    nodes_[inode].is_dir = op.kind == Kind::kMakeDir;
    nodes_[inode].mtime_ns = ++clock_;
    place.dir->names[place.name] = inode;
    NamesChanged(*place.dir);
    return OkStatus();
  }
  if (!present) return NotThere(op.path);
  if (op.kind == Kind::kRename || op.kind == Kind::kExchange) return ApplyRename(op, place);
  const Node& node = nodes_.at(found->second);
  if (node.is_dir != (op.kind == Kind::kRemoveDir)) {
    return MakeError(ErrorCode::kIo, node.is_dir ? "this is a directory" : "this is no directory").WithPath(op.path);
  }
  if (!node.names.empty()) return MakeError(ErrorCode::kIo, "the directory is not empty").WithPath(op.path);
  place.dir->names.erase(found);
  NamesChanged(*place.dir);
  return OkStatus();
}

Status MemoryImage::ApplyRename(const MemoryOperation& op, const Place& from) {
  const Place to = PlaceOf(op.other);
  if (to.dir == nullptr) return NotThere(op.other);
  const std::uint64_t moved = from.dir->names.at(from.name);
  const auto found = to.dir->names.find(to.name);
  const std::uint64_t replaced = found == to.dir->names.end() ? 0 : found->second;
  if (op.kind == MemoryOperation::Kind::kExchange) {
    if (replaced == 0) return NotThere(op.other);
    from.dir->names[from.name] = replaced;
  } else {
    if (replaced != 0 && replaced != moved) {
      const Node& old = nodes_.at(replaced);
      if (old.is_dir != nodes_.at(moved).is_dir || !old.names.empty()) {
        return MakeError(ErrorCode::kIo, "the target of the rename exists").WithPath(op.other);
      }
    }
    from.dir->names.erase(from.name);
  }
  to.dir->names[to.name] = moved;
  NamesChanged(*to.dir);
  if (from.dir != to.dir) NamesChanged(*from.dir);
  return OkStatus();
}

void MemoryImage::Crash(Unsynced unsynced, std::uint64_t seed) {
  CROSSDOCK_CHECK(tracking_);
  std::mt19937_64 random(seed);
  for (auto& [inode, node] : nodes_) {
    if (unsynced != Unsynced::kKept) {
      node.data = node.durable_data;
      for (const MemoryOperation& op : node.unsynced_data) {
        if (unsynced == Unsynced::kSome && (random() & 1U) != 0) ApplyData(node.data, op);
      }
      const std::size_t reached =
          unsynced == Unsynced::kSome ? static_cast<std::size_t>(random() % (node.unsynced_names.size() + 1)) : 0;
      node.names = reached == 0 ? node.durable_names : node.unsynced_names[reached - 1];
    }
  }
  StartTracking();
}

}  // namespace crossdock::io
