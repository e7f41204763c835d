// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/tensors.h"

#include "base/checked_math.h"
#include "formats/pickle/torch_names.h"

namespace crossdock::formats::pickle {
namespace {

Error Malformed(std::string what) {
  return MakeError(ErrorCode::kCorrupt, "a tensor in a pickle is malformed: " + std::move(what));
}

/// The callee's name when it is a function of torch._utils (or torch._tensor), else empty.
std::string_view RebuildFunction(const Graph& graph, NodeId callee) {
  if (callee == kNoNode) return {};
  const std::string_view module = graph.module(callee);
  return module == "torch._utils" || module == "torch._tensor" ? graph.name(callee) : std::string_view();
}

struct Storage {
  std::optional<DType> dtype;  // nothing for untyped storages
  bool known = true;           // false: a class without a DType
  std::string key;
  std::int64_t numel = 0;      // elements; bytes when untyped
  std::int64_t view_offset = 0;
};

Status ReadClass(const Graph& graph, NodeId node, Storage& out) {
  const std::string_view module = graph.module(node);
  const std::string_view name = graph.name(node);
  if (module.substr(0, 5) != "torch" || name.empty()) return Malformed("its storage is of no torch class");
  if (name == "UntypedStorage") return OkStatus();
  out.dtype = DTypeFromStorageClass(name);
  out.known = out.dtype.has_value();
  return OkStatus();
}

Result<Storage> ReadStorage(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kPersistentId) return Malformed("its storage is no persistent id");
  const std::span<const NodeId> id = graph.refs(graph.refs(node)[0]);
  if (id.size() != 5 && id.size() != 6) return Malformed("its persistent id has " + std::to_string(id.size()) + " parts");
  const std::string* tag = graph.as_string(id[0]);
  const std::string* key = graph.as_string(id[2]);
  const std::int64_t* numel = graph.as_int(id[4]);
  if (tag == nullptr || *tag != "storage" || key == nullptr || numel == nullptr || *numel < 0) {
    return Malformed("its persistent id does not describe a storage");
  }
  Storage out{.dtype = {}, .key = *key, .numel = *numel};
  CROSSDOCK_RETURN_IF_ERROR(ReadClass(graph, id[1], out));
  if (id.size() == 6 && graph.kind(id[5]) == NodeKind::kTuple) {  // the old form's view of a storage: (key, offset, size)
    const std::span<const NodeId> view = graph.refs(id[5]);
    const std::int64_t* offset = view.size() == 3 ? graph.as_int(view[1]) : nullptr;
    if (offset == nullptr || *offset < 0) return Malformed("its storage view is malformed");
    out.view_offset = *offset;
  }
  return out;
}

Status CheckWithin(const TensorValue& tensor) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t count, ElementCount(tensor.shape));
  if (tensor.storage_offset < 0) return Malformed("negative offset");
  if (count == 0) return OkStatus();
  std::optional<std::int64_t> last = tensor.storage_offset;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.strides[i] < 0) return Malformed("negative stride");
    const auto reach = CheckedMul(tensor.shape[i] - 1, tensor.strides[i]);
    last = reach && last ? CheckedAdd(*last, *reach) : std::nullopt;
  }
  if (last && *last < tensor.storage_numel) return OkStatus();
  return Malformed("it reaches past the end of its storage")
      .WithExpected("at most " + std::to_string(tensor.storage_numel) + " elements")
      .WithFound("shape " + ToString(tensor.shape) + ", strides " + ToString(tensor.strides) + ", offset " +
                 std::to_string(tensor.storage_offset));
}

/// arguments: storage, offset, size, stride, requires_grad, hooks; v3 adds the dtype.
Result<std::optional<TensorValue>> ReadTensor(const Graph& graph, std::span<const NodeId> arguments, bool v3) {
  if (arguments.size() < (v3 ? 7U : 4U)) return Malformed("too few arguments");
  CROSSDOCK_ASSIGN_OR_RETURN(Storage storage, ReadStorage(graph, arguments[0]));
  if (v3) {
    storage.dtype = graph.module(arguments[6]) == "torch" ? DTypeFromTorch(graph.name(arguments[6])) : std::nullopt;
    storage.known = storage.dtype.has_value();
  }
  if (!storage.known || !storage.dtype) return std::optional<TensorValue>();
  TensorValue out;
  out.dtype = *storage.dtype;
  out.storage = std::move(storage.key);
  out.storage_numel = v3 ? storage.numel / ElementSize(out.dtype) : storage.numel;
  const std::int64_t* offset = graph.as_int(arguments[1]);
  CROSSDOCK_ASSIGN_OR_RETURN(const auto shape, DimsFrom(graph, arguments[2]));
  CROSSDOCK_ASSIGN_OR_RETURN(const auto strides, DimsFrom(graph, arguments[3]));
  if (offset == nullptr || !shape || !strides || shape->size() != strides->size()) {
    return Malformed("its offset, size or stride is no whole number");
  }
  const auto start = CheckedAdd(*offset, storage.view_offset);
  if (!start) return Malformed("its offset overflows");
  out.storage_offset = *start;
  out.shape = *shape;
  out.strides = *strides;
  CROSSDOCK_RETURN_IF_ERROR(CheckWithin(out));
  return std::optional<TensorValue>(std::move(out));
}

Result<std::optional<TensorValue>> Rebuild(const Graph& graph, NodeId callee, NodeId arguments) {
  const std::string_view function = RebuildFunction(graph, callee);
  if (arguments == kNoNode || graph.kind(arguments) != NodeKind::kTuple) return std::optional<TensorValue>();
  const std::span<const NodeId> args = graph.refs(arguments);
  if (function == "_rebuild_tensor" || function == "_rebuild_tensor_v2") return ReadTensor(graph, args, false);
  if (function == "_rebuild_tensor_v3") return ReadTensor(graph, args, true);
  return std::optional<TensorValue>();
}

}  // namespace

Result<std::optional<TensorValue>> TensorFrom(const Graph& graph, NodeId object) {
  // Wrappers may nest (a parameter of a subclass), but not deeply in any real file.
  for (int depth = 0; depth < 4; ++depth) {
    const NodeId callee = graph.part(object, kCallee);
    const NodeId arguments = graph.part(object, kArguments);
    const std::string_view function = RebuildFunction(graph, callee);
    if (function.empty()) return std::optional<TensorValue>();
    const std::span<const NodeId> args = graph.refs(arguments);
    if (function == "_rebuild_from_type_v2") {  // (function, type, arguments, state)
      if (args.size() != 4) return Malformed("too few arguments");
      const std::string_view inner = RebuildFunction(graph, args[0]);
      if (inner != "_rebuild_parameter" && inner != "_rebuild_parameter_with_state") return Rebuild(graph, args[0], args[2]);
      const std::span<const NodeId> inner_args = graph.refs(args[2]);
      if (inner_args.empty()) return Malformed("too few arguments");
      object = inner_args[0];
    } else if (function == "_rebuild_parameter" || function == "_rebuild_parameter_with_state") {
      if (args.empty()) return Malformed("too few arguments");
      object = args[0];
    } else {
      return Rebuild(graph, callee, arguments);
    }
  }
  return std::optional<TensorValue>();
}

Result<std::optional<Dims>> DimsFrom(const Graph& graph, NodeId node) {
  if (graph.QualifiedName(node) == "torch.Size" && graph.kind(node) == NodeKind::kObject) {
    const std::span<const NodeId> args = graph.refs(graph.part(node, kArguments));
    if (args.size() != 1) return std::optional<Dims>();
    node = args[0];
  }
  if (graph.kind(node) != NodeKind::kTuple && graph.kind(node) != NodeKind::kList) return std::optional<Dims>();
  std::vector<std::int64_t> values;
  for (NodeId ref : graph.refs(node)) {
    const std::int64_t* value = graph.as_int(ref);
    if (value == nullptr) return std::optional<Dims>();
    values.push_back(*value);
    if (values.size() > kMaxRank) break;  // FromSpan refuses, however many follow
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const Dims dims, Dims::FromSpan(values));
  return std::optional<Dims>(dims);
}

}  // namespace crossdock::formats::pickle
