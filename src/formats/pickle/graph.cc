// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/graph.h"

#include <algorithm>

#include "base/check.h"

namespace crossdock::formats::pickle {
namespace {

/// Collecting more often than each 8 MiB costs time and saves nothing worth having.
constexpr std::int64_t kFirstThreshold = 8 << 20;

}  // namespace

Graph::Graph(std::int64_t max_bytes) : threshold_(kFirstThreshold), max_bytes_(max_bytes) {
  nodes_.push_back({.kind = NodeKind::kNull, .payload = {}});
  nodes_.push_back({.kind = NodeKind::kBool, .payload = std::int64_t{0}});
  nodes_.push_back({.kind = NodeKind::kBool, .payload = std::int64_t{1}});
}

NodeId Graph::AddInt(NodeKind kind, std::int64_t value) { return Add({.kind = kind, .payload = value}); }
NodeId Graph::AddFloat(double value) { return Add({.kind = NodeKind::kFloat, .payload = value}); }
NodeId Graph::AddText(NodeKind kind, std::string text) { return Add({.kind = kind, .payload = std::move(text)}); }
NodeId Graph::AddRefs(NodeKind kind, std::vector<NodeId> refs) {
  return Add({.kind = kind, .payload = std::move(refs)});
}

NodeId Graph::AddObject(Opaque::Form form, NodeId callee, NodeId arguments) {
  std::vector<NodeId> parts = {callee, arguments, kNoNode, kNoNode, kNoNode};
  return Add({.kind = NodeKind::kObject, .form = form, .payload = std::move(parts)});
}

NodeId Graph::Add(Node node) {
  bytes_ += BytesOf(node);
  if (!free_.empty()) {
    const NodeId id = free_.back();
    free_.pop_back();
    nodes_[id] = std::move(node);
    return id;
  }
  CROSSDOCK_CHECK(nodes_.size() < kNoNode);  // CheckSize stops long before
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Graph::Append(NodeId container, NodeId item) {
  auto* refs = std::get_if<std::vector<NodeId>>(&nodes_[container].payload);
  CROSSDOCK_CHECK(refs != nullptr);
  refs->push_back(item);
  bytes_ += static_cast<std::int64_t>(sizeof(NodeId));
}

void Graph::SetPart(NodeId object, ObjectPart part, NodeId node) {
  auto* refs = std::get_if<std::vector<NodeId>>(&nodes_[object].payload);
  CROSSDOCK_CHECK(refs != nullptr && refs->size() == kObjectParts);
  (*refs)[part] = node;
}

NodeId Graph::PartContainer(NodeId object, ObjectPart which) {
  const NodeId found = part(object, which);
  if (found != kNoNode) return found;
  const NodeId made = AddRefs(which == kEntries ? NodeKind::kDict : NodeKind::kList, {});
  SetPart(object, which, made);
  return made;
}

void Graph::Collapse(NodeId id, std::int64_t handle) {
  bytes_ -= BytesOf(nodes_[id]);
  nodes_[id] = {.kind = NodeKind::kHandle, .payload = handle};
  bytes_ += BytesOf(nodes_[id]);
}

const std::int64_t* Graph::as_int(NodeId id) const {
  return nodes_[id].kind == NodeKind::kInt ? std::get_if<std::int64_t>(&nodes_[id].payload) : nullptr;
}

const std::string* Graph::as_string(NodeId id) const {
  return nodes_[id].kind == NodeKind::kString ? std::get_if<std::string>(&nodes_[id].payload) : nullptr;
}

std::span<const NodeId> Graph::refs(NodeId id) const {
  const auto* refs = std::get_if<std::vector<NodeId>>(&nodes_[id].payload);
  return refs == nullptr ? std::span<const NodeId>() : std::span<const NodeId>(*refs);
}

NodeId Graph::part(NodeId object, ObjectPart part) const {
  return nodes_[object].kind == NodeKind::kObject ? refs(object)[part] : kNoNode;
}

std::string_view Graph::module(NodeId global) const {
  if (nodes_[global].kind != NodeKind::kGlobal) return {};
  const std::string_view text = std::get<std::string>(nodes_[global].payload);
  return text.substr(0, text.find('\n'));
}

std::string_view Graph::name(NodeId global) const {
  if (nodes_[global].kind != NodeKind::kGlobal) return {};
  const std::string_view text = std::get<std::string>(nodes_[global].payload);
  return text.substr(text.find('\n') + 1);
}

std::string Graph::QualifiedName(NodeId id) const {
  const NodeId global = kind(id) == NodeKind::kObject ? part(id, kCallee) : id;
  if (kind(global) != NodeKind::kGlobal) return {};
  return std::string(module(global)) + "." + std::string(name(global));
}

NodeId Graph::Find(NodeId dict, std::string_view key) const {
  if (dict == kNoNode || kind(dict) != NodeKind::kDict) return kNoNode;
  const std::span<const NodeId> items = refs(dict);
  for (std::size_t i = items.size(); i >= 2; i -= 2) {  // backwards: of equal keys the last one counts
    const std::string* text = as_string(items[i - 2]);
    if (text != nullptr && *text == key) return items[i - 1];
  }
  return kNoNode;
}

void Graph::Collect(std::span<const std::span<const NodeId>> roots) {
  std::vector<NodeId> todo = {0, 1, 2};
  const auto mark = [&](NodeId id) {
    if (id == kNoNode || nodes_[id].marked) return;
    nodes_[id].marked = true;
    todo.push_back(id);
  };
  for (const auto& group : roots) std::for_each(group.begin(), group.end(), mark);
  for (NodeId id : {0U, 1U, 2U}) nodes_[id].marked = true;
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    for (NodeId ref : refs(id)) mark(ref);
  }
  bytes_ = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (node.marked) {
      node.marked = false;
      bytes_ += BytesOf(node);
    } else if (node.kind != NodeKind::kFree) {
      node = Node{};
      free_.push_back(static_cast<NodeId>(i));
    }
  }
  threshold_ = std::max(kFirstThreshold, 2 * bytes_);
}

Status Graph::CheckSize() const {
  if (bytes_ <= max_bytes_) return OkStatus();
  return MakeError(ErrorCode::kUnsafe, "a pickle would need too much memory")
      .WithExpected("at most " + std::to_string(max_bytes_) + " bytes")
      .WithFound("more than " + std::to_string(bytes_));
}

std::int64_t Graph::BytesOf(const Node& node) {
  std::size_t bytes = sizeof(Node);
  if (const auto* text = std::get_if<std::string>(&node.payload)) bytes += text->size() > 15 ? text->capacity() : 0;
  if (const auto* refs = std::get_if<std::vector<NodeId>>(&node.payload)) bytes += refs->capacity() * sizeof(NodeId);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace crossdock::formats::pickle
