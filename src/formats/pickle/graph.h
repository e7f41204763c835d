// SPDX-License-Identifier: Apache-2.0
/// \file  Graph: the objects of a pickle while it is read: nodes that refer to nodes by number, never by pointer.
/// Shared and circular references are plain numbers here, so nothing recurses, whatever a hostile pickle builds, and
/// memory is linear in the input. Unreachable nodes are collected, so a long pickle whose parts are consumed on the
/// way (a `.metadata` with a million chunks) needs memory for the parts in flight only.
/// Invariants: nodes 0, 1, 2 are None, False, True. An object node refers to exactly kObjectParts nodes.
/// Threads: none; one reader owns a graph.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "crossdock/result.h"
#include "tensor/value.h"

namespace crossdock::formats::pickle {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

enum class NodeKind : std::uint8_t {
  kFree, kNull, kBool, kInt, kFloat, kString, kBytes, kByteArray, kBigInt, kGlobal, kTuple, kList, kDict, kSet,
  kFrozenSet, kObject, kPersistentId,
  kHandle,  ///< what an Observer left in the place of an object it has consumed
};

/// The parts of an object node, by place in its references; kNoNode when absent.
enum ObjectPart : std::uint8_t { kCallee, kArguments, kState, kItems, kEntries };
inline constexpr std::size_t kObjectParts = 5;

struct Node {
  NodeKind kind = NodeKind::kFree;
  Opaque::Form form = Opaque::Form::kReduce;  ///< of objects
  bool marked = false;                        ///< during Collect only
  /// int64: bool, int, handle. string: text, bytes, "module\nname" of a global. vector: references (a dict: key,
  /// value, key, value ...; a persistent id: one).
  std::variant<std::monostate, std::int64_t, double, std::string, std::vector<NodeId>> payload;
};

class Graph {
 public:
  explicit Graph(std::int64_t max_bytes);

  [[nodiscard]] static NodeId null() { return 0; }
  [[nodiscard]] static NodeId boolean(bool v) { return v ? 2 : 1; }
  [[nodiscard]] NodeId AddInt(NodeKind kind, std::int64_t value);
  [[nodiscard]] NodeId AddFloat(double value);
  [[nodiscard]] NodeId AddText(NodeKind kind, std::string text);
  [[nodiscard]] NodeId AddRefs(NodeKind kind, std::vector<NodeId> refs);
  [[nodiscard]] NodeId AddObject(Opaque::Form form, NodeId callee, NodeId arguments);
  /// Adds a reference to a list, set, dict or to a part of an object.
  void Append(NodeId container, NodeId item);
  void SetPart(NodeId object, ObjectPart part, NodeId node);
  /// The list or dict that holds an object's items, made on first use.
  [[nodiscard]] NodeId PartContainer(NodeId object, ObjectPart part);
  /// Replaces a node by a handle, dropping what it referred to.
  void Collapse(NodeId node, std::int64_t handle);

  [[nodiscard]] NodeKind kind(NodeId id) const { return nodes_[id].kind; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id]; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  // Typed looks; null or kNoNode when the node is of another kind.
  [[nodiscard]] const std::int64_t* as_int(NodeId id) const;
  [[nodiscard]] const std::string* as_string(NodeId id) const;
  [[nodiscard]] std::span<const NodeId> refs(NodeId id) const;   ///< empty for nodes without
  [[nodiscard]] NodeId part(NodeId object, ObjectPart part) const;
  [[nodiscard]] std::string_view module(NodeId global) const;    ///< empty when not a global
  [[nodiscard]] std::string_view name(NodeId global) const;
  /// "module.name" of a global or of an object's class, for messages and comparisons; empty otherwise.
  [[nodiscard]] std::string QualifiedName(NodeId id) const;
  /// Value under a string key of a dict node, kNoNode when absent.
  [[nodiscard]] NodeId Find(NodeId dict, std::string_view key) const;

  /// True when so much was added that a collection pays. kUnsafe (CheckSize) when even that does not help.
  [[nodiscard]] bool wants_collection() const { return bytes_ > threshold_; }
  void Collect(std::span<const std::span<const NodeId>> roots);
  [[nodiscard]] Status CheckSize() const;

 private:
  [[nodiscard]] NodeId Add(Node node);
  [[nodiscard]] static std::int64_t BytesOf(const Node& node);

  std::vector<Node> nodes_;
  std::vector<NodeId> free_;
  std::int64_t bytes_ = 0;       // estimate of what live nodes take
  std::int64_t threshold_;
  std::int64_t max_bytes_;
};

}  // namespace crossdock::formats::pickle
