// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/expand.h"

#include <unordered_map>

#include "formats/pickle/numbers.h"
#include "formats/pickle/tensors.h"
#include "formats/pickle/torch_names.h"

namespace crossdock::formats::pickle {
namespace {

Value MakeOpaque(Opaque::Form form, std::string module, std::string name, ValueList args) {
  Opaque out;
  out.form = form;
  out.module = std::move(module);
  out.name = std::move(name);
  out.args = std::move(args);
  return Value(std::move(out));
}

class Expander {
 public:
  Expander(const Graph& graph, const Limits& limits) : graph_(graph), limits_(limits), open_(graph.size(), false) {}

  Result<Value> Node(NodeId id) {
    if (++values_ > limits_.max_values) return TooLarge("values", limits_.max_values);
    switch (graph_.kind(id)) {
      case NodeKind::kNull: case NodeKind::kFree: case NodeKind::kHandle: return Value();
      case NodeKind::kBool: return Value(std::get<std::int64_t>(graph_.node(id).payload) != 0);
      case NodeKind::kInt: return Value(std::get<std::int64_t>(graph_.node(id).payload));
      case NodeKind::kFloat: return Value(std::get<double>(graph_.node(id).payload));
      case NodeKind::kString: case NodeKind::kBytes: case NodeKind::kByteArray: case NodeKind::kBigInt: return Text(id);
      case NodeKind::kGlobal: return Global(id);
      default: break;
    }
    if (open_[id]) {
      return MakeError(ErrorCode::kUnsupported, "a pickle holds a structure that contains itself");
    }
    if (depth_ >= limits_.max_depth) return TooLarge("levels", limits_.max_depth);
    open_[id] = true;
    ++depth_;
    Result<Value> out = graph_.kind(id) == NodeKind::kObject ? Object(id) : Container(id);
    --depth_;
    open_[id] = false;
    return out;
  }

 private:
  Error TooLarge(std::string_view what, std::int64_t limit) const {
    return MakeError(ErrorCode::kUnsafe, "a pickle unfolds to more than any checkpoint holds")
        .WithExpected("at most " + std::to_string(limit) + " " + std::string(what));
  }

  Result<Value> Text(NodeId id) {
    const std::string& text = std::get<std::string>(graph_.node(id).payload);
    text_bytes_ += static_cast<std::int64_t>(text.size());
    if (text_bytes_ > limits_.max_text_bytes) return TooLarge("bytes of text", limits_.max_text_bytes);
    switch (graph_.kind(id)) {
      case NodeKind::kString: return Value(text);
      case NodeKind::kBytes: return Value(Value::Bytes{text});
      case NodeKind::kBigInt: return Value(Value::BigInt{text});
      default: return MakeOpaque(Opaque::Form::kReduce, "builtins", "bytearray", {Value(Value::Bytes{text})});
    }
  }

  Result<Value> Global(NodeId id) {
    if (graph_.module(id) == "torch") {
      if (const auto dtype = DTypeFromTorch(graph_.name(id))) return Value(*dtype);
    }
    return MakeOpaque(Opaque::Form::kGlobal, std::string(graph_.module(id)), std::string(graph_.name(id)), {});
  }

  Result<ValueList> List(std::span<const NodeId> refs) {
    ValueList out;
    for (NodeId ref : refs) {
      CROSSDOCK_ASSIGN_OR_RETURN(Value item, Node(ref));
      out.push_back(std::move(item));
    }
    return out;
  }

  Result<ValueDict> Dict(std::span<const NodeId> refs) {
    ValueDict out;
    std::unordered_map<std::string, std::size_t> seen;  // of equal keys the last value counts, at the first's place
    for (std::size_t i = 0; i + 1 < refs.size(); i += 2) {
      CROSSDOCK_ASSIGN_OR_RETURN(Value value, Node(refs[i + 1]));
      if (const std::string* key = graph_.as_string(refs[i])) {
        const auto [at, fresh] = seen.emplace(*key, out.size());
        if (!fresh) {
          out[at->second].second = std::move(value);
          continue;
        }
      }
      CROSSDOCK_ASSIGN_OR_RETURN(Value key, Node(refs[i]));
      out.emplace_back(std::move(key), std::move(value));
    }
    return out;
  }

  Result<Value> Container(NodeId id) {
    const NodeKind kind = graph_.kind(id);
    if (kind == NodeKind::kDict) {
      CROSSDOCK_ASSIGN_OR_RETURN(ValueDict items, Dict(graph_.refs(id)));
      return Value::MakeDict(std::move(items));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(ValueList items, List(graph_.refs(id)));
    switch (kind) {
      case NodeKind::kList: return Value::MakeList(std::move(items));
      case NodeKind::kTuple: return Value::MakeTuple(std::move(items));
      case NodeKind::kPersistentId: return MakeOpaque(Opaque::Form::kPersId, "", "", std::move(items));
      default: break;
    }
    ValueList args;
    args.push_back(Value::MakeList(std::move(items)));
    return MakeOpaque(Opaque::Form::kReduce, "builtins", kind == NodeKind::kSet ? "set" : "frozenset", std::move(args));
  }

  Result<Value> Object(NodeId id) {
    CROSSDOCK_ASSIGN_OR_RETURN(auto tensor, TensorFrom(graph_, id));
    if (tensor) return Value(std::move(*tensor));
    const std::string callee = graph_.QualifiedName(id);
    const std::span<const NodeId> args = graph_.refs(graph_.part(id, kArguments));
    if (callee == "torch.Size" && args.size() == 1 && graph_.kind(args[0]) == NodeKind::kTuple) return Node(args[0]);
    if (callee == "collections.OrderedDict") return OrderedDict(id, args);
    if (callee == "_codecs.encode" && !args.empty()) return Encoded(args);
    if (callee == "builtins.bytes" && args.empty()) return Value(Value::Bytes{});
    if (callee == "builtins.bytearray") return ByteArray(id, args);
    return Inert(id, args);
  }

  /// A state (nn.Module's `_metadata`) is dropped: it is about classes, not about the data.
  Result<Value> OrderedDict(NodeId id, std::span<const NodeId> args) {
    std::vector<NodeId> refs;
    if (!args.empty()) {  // Python 2: OrderedDict([[key, value], ...])
      for (NodeId pair : graph_.refs(args[0])) {
        const std::span<const NodeId> both = graph_.refs(pair);
        if (both.size() != 2) return Inert(id, args);
        refs.insert(refs.end(), both.begin(), both.end());
      }
    }
    const NodeId entries = graph_.part(id, kEntries);
    if (entries != kNoNode) refs.insert(refs.end(), graph_.refs(entries).begin(), graph_.refs(entries).end());
    CROSSDOCK_ASSIGN_OR_RETURN(ValueDict items, Dict(refs));
    Value out = Value::MakeDict(std::move(items));
    out.as_dict()->ordered_class = true;
    return out;
  }

  /// Bytes below protocol 3: _codecs.encode(text, "latin1").
  Result<Value> Encoded(std::span<const NodeId> args) {
    const std::string* text = graph_.as_string(args[0]);
    const std::string* codec = args.size() > 1 ? graph_.as_string(args[1]) : nullptr;
    if (text == nullptr || codec == nullptr || (*codec != "latin1" && *codec != "latin-1")) {
      return MakeError(ErrorCode::kUnsupported, "a pickle encodes a string in a way that no pickler does");
    }
    text_bytes_ += static_cast<std::int64_t>(text->size());
    if (text_bytes_ > limits_.max_text_bytes) return TooLarge("bytes of text", limits_.max_text_bytes);
    CROSSDOCK_ASSIGN_OR_RETURN(std::string bytes, Latin1ToBytes(*text));
    return Value(Value::Bytes{std::move(bytes)});
  }

  /// bytearray(), bytearray(bytes) and, below protocol 3, bytearray(text, "latin-1"), all as the second.
  Result<Value> ByteArray(NodeId id, std::span<const NodeId> args) {
    if (args.size() > 2) return Inert(id, args);
    Value bytes = Value(Value::Bytes{});
    if (args.size() == 2) {
      CROSSDOCK_ASSIGN_OR_RETURN(bytes, Encoded(args));
    } else if (args.size() == 1) {
      CROSSDOCK_ASSIGN_OR_RETURN(bytes, Node(args[0]));
    }
    return MakeOpaque(Opaque::Form::kReduce, "builtins", "bytearray", {std::move(bytes)});
  }

  Result<Value> Inert(NodeId id, std::span<const NodeId> args) {
    NodeId callee = graph_.part(id, kCallee);
    Opaque out;
    out.form = graph_.node(id).form;
    // Protocols 0 and 1 make plain objects by copyreg._reconstructor(class, object, None).
    const bool plain = graph_.QualifiedName(callee) == "copyreg._reconstructor" && args.size() == 3 &&
                       graph_.QualifiedName(args[1]) == "builtins.object" && graph_.kind(args[0]) == NodeKind::kGlobal;
    if (plain) {
      callee = args[0];
      args = {};
      out.form = Opaque::Form::kNewObj;
    }
    out.module = std::string(graph_.module(callee));
    out.name = std::string(graph_.name(callee));
    CROSSDOCK_ASSIGN_OR_RETURN(out.args, List(args));
    if (const NodeId state = graph_.part(id, kState); state != kNoNode) {
      CROSSDOCK_ASSIGN_OR_RETURN(Value value, Node(state));
      out.state = std::make_shared<Value>(std::move(value));
    }
    if (const NodeId items = graph_.part(id, kItems); items != kNoNode) {
      CROSSDOCK_ASSIGN_OR_RETURN(out.items, List(graph_.refs(items)));
    }
    if (const NodeId entries = graph_.part(id, kEntries); entries != kNoNode) {
      CROSSDOCK_ASSIGN_OR_RETURN(out.entries, Dict(graph_.refs(entries)));
    }
    return Value(std::move(out));
  }

  const Graph& graph_;
  const Limits& limits_;
  std::vector<bool> open_;     // nodes between the root and here
  std::int64_t values_ = 0;
  std::int64_t text_bytes_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<Value> Expand(const Graph& graph, NodeId root, const Limits& limits) { return Expander(graph, limits).Node(root); }

}  // namespace crossdock::formats::pickle
