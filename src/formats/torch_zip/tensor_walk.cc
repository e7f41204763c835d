// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/tensor_walk.h"

namespace crossdock::formats::torch_zip {
namespace {

using Map = std::function<Result<TensorValue>(const TensorValue&)>;

Result<ValueList> MapList(const ValueList& items, const Map& map) {
  ValueList out;
  out.reserve(items.size());
  for (const Value& item : items) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value mapped, MapTensors(item, map));
    out.push_back(std::move(mapped));
  }
  return out;
}

Result<ValueDict> MapDict(const ValueDict& items, const Map& map) {
  ValueDict out;
  out.reserve(items.size());
  for (const auto& [key, value] : items) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value mapped_key, MapTensors(key, map));
    CROSSDOCK_ASSIGN_OR_RETURN(Value mapped, MapTensors(value, map));
    out.emplace_back(std::move(mapped_key), std::move(mapped));
  }
  return out;
}

Result<Value> MapOpaque(const Opaque& opaque, const Map& map) {
  Opaque out = opaque;
  CROSSDOCK_ASSIGN_OR_RETURN(out.args, MapList(opaque.args, map));
  CROSSDOCK_ASSIGN_OR_RETURN(out.items, MapList(opaque.items, map));
  CROSSDOCK_ASSIGN_OR_RETURN(out.entries, MapDict(opaque.entries, map));
  if (opaque.state != nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value state, MapTensors(*opaque.state, map));
    out.state = std::make_shared<Value>(std::move(state));
  }
  return Value(std::move(out));
}

}  // namespace

void ForEachTensor(const Value& value, const std::function<void(const TensorValue&)>& visit) {
  const auto all = [&](const ValueList& items) {
    for (const Value& item : items) ForEachTensor(item, visit);
  };
  const auto both = [&](const ValueDict& items) {
    for (const auto& [key, item] : items) {
      ForEachTensor(key, visit);
      ForEachTensor(item, visit);
    }
  };
  if (const TensorValue* t = value.as_tensor()) visit(*t);
  if (const ValueList* items = value.as_sequence()) all(*items);
  if (const Value::Dict* dict = value.as_dict()) both(dict->items);
  if (const Opaque* o = value.as_opaque()) {
    all(o->args);
    all(o->items);
    both(o->entries);
    if (o->state != nullptr) ForEachTensor(*o->state, visit);
  }
}

Result<Value> MapTensors(const Value& value, const Map& map) {
  if (const TensorValue* t = value.as_tensor()) {
    CROSSDOCK_ASSIGN_OR_RETURN(TensorValue mapped, map(*t));
    return Value(std::move(mapped));
  }
  if (const ValueList* items = value.as_sequence()) {
    CROSSDOCK_ASSIGN_OR_RETURN(ValueList mapped, MapList(*items, map));
    return value.is_tuple() ? Value::MakeTuple(std::move(mapped)) : Value::MakeList(std::move(mapped));
  }
  if (const Value::Dict* dict = value.as_dict()) {
    CROSSDOCK_ASSIGN_OR_RETURN(ValueDict mapped, MapDict(dict->items, map));
    Value out = Value::MakeDict(std::move(mapped));
    out.as_dict()->ordered_class = dict->ordered_class;
    return out;
  }
  if (const Opaque* opaque = value.as_opaque()) return MapOpaque(*opaque, map);
  return value;
}

}  // namespace crossdock::formats::torch_zip
