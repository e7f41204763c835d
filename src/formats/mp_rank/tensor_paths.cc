// SPDX-License-Identifier: Apache-2.0
#include "formats/mp_rank/tensor_paths.h"

#include "formats/pickle/torch_names.h"

namespace crossdock::formats::mp_rank {
namespace {

std::string Below(const std::string& path, const std::string& key) { return path.empty() ? key : path + "/" + key; }

Result<ValueList> MapList(const ValueList& items, const std::string& path, const PathMap& map) {
  ValueList out;
  out.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value mapped, MapTensorPaths(items[i], Below(path, std::to_string(i)), map));
    out.push_back(std::move(mapped));
  }
  return out;
}

Result<ValueDict> MapDict(const ValueDict& items, const std::string& path, const PathMap& map) {
  ValueDict out;
  out.reserve(items.size());
  for (const auto& [key, value] : items) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value mapped, MapTensorPaths(value, Below(path, KeyText(key)), map));
    out.emplace_back(key, std::move(mapped));
  }
  return out;
}

Result<Value> MapOpaque(const Opaque& opaque, const std::string& path, const PathMap& map) {
  Opaque out = opaque;
  CROSSDOCK_ASSIGN_OR_RETURN(out.args, MapList(opaque.args, Below(path, "()"), map));
  CROSSDOCK_ASSIGN_OR_RETURN(out.items, MapList(opaque.items, path, map));
  CROSSDOCK_ASSIGN_OR_RETURN(out.entries, MapDict(opaque.entries, path, map));
  if (opaque.state != nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value state, MapTensorPaths(*opaque.state, path, map));
    out.state = std::make_shared<Value>(std::move(state));
  }
  return Value(std::move(out));
}

}  // namespace

std::string KeyText(const Value& key) {
  if (const std::string* text = key.as_string()) return *text;
  if (const DType* dtype = key.as_dtype()) return "torch." + std::string(pickle::TorchName(*dtype));
  if (const ValueList* items = key.as_sequence()) {
    std::string out = "(";
    for (const Value& item : *items) out += (out.size() > 1 ? ", " : "") + KeyText(item);
    return out + ")";
  }
  return ToJson(key, 0);
}

Result<Value> MapTensorPaths(const Value& value, const std::string& path, const PathMap& map) {
  if (const TensorValue* t = value.as_tensor()) {
    CROSSDOCK_ASSIGN_OR_RETURN(TensorValue mapped, map(path, *t));
    return Value(std::move(mapped));
  }
  if (const ValueList* items = value.as_sequence()) {
    CROSSDOCK_ASSIGN_OR_RETURN(ValueList mapped, MapList(*items, path, map));
    return value.is_tuple() ? Value::MakeTuple(std::move(mapped)) : Value::MakeList(std::move(mapped));
  }
  if (const Value::Dict* dict = value.as_dict()) {
    CROSSDOCK_ASSIGN_OR_RETURN(ValueDict mapped, MapDict(dict->items, path, map));
    Value out = Value::MakeDict(std::move(mapped));
    out.as_dict()->ordered_class = dict->ordered_class;
    return out;
  }
  if (const Opaque* opaque = value.as_opaque()) return MapOpaque(*opaque, path, map);
  return value;
}

}  // namespace crossdock::formats::mp_rank
