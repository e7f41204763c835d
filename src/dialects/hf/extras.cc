// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/extras.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::string_view kTuple = "__tuple__";
constexpr std::string_view kDType = "__dtype__";

/// Nothing when the value, or what is left of it, has no form in JSON.
std::optional<Value> Tag(const Value& value, const std::string& place, std::vector<std::string>* dropped) {
  if (value.as_bytes() || value.as_bigint() || value.as_tensor() || value.as_opaque()) {
    dropped->push_back(place);
    return std::nullopt;
  }
  if (const DType* dtype = value.as_dtype()) {
    Value out = Value::MakeDict();
    out.Set(kDType, Value(DTypeName(*dtype)));
    return out;
  }
  if (const ValueList* items = value.as_sequence()) {
    ValueList list;
    for (std::size_t i = 0; i < items->size(); ++i) {
      auto item = Tag((*items)[i], place + "[" + std::to_string(i) + "]", dropped);
      list.push_back(item ? std::move(*item) : Value());  // places count in a list
    }
    Value tagged = Value::MakeList(std::move(list));
    if (!value.is_tuple()) return tagged;
    Value out = Value::MakeDict();
    out.Set(kTuple, std::move(tagged));
    return out;
  }
  if (const Value::Dict* dict = value.as_dict()) {
    Value out = Value::MakeDict();
    for (const auto& [key, item] : dict->items) {
      const std::string* name = key.as_string();
      if (name == nullptr) {
        dropped->push_back(place + "." + ToJson(key, 0));
        continue;
      }
      if (auto tagged = Tag(item, place.empty() ? *name : place + "." + *name, dropped)) out.Set(*name, std::move(*tagged));
    }
    return out;
  }
  return value;
}

Value Untag(const Value& value) {
  if (const ValueList* items = value.as_sequence()) {
    ValueList list;
    for (const Value& item : *items) list.push_back(Untag(item));
    return Value::MakeList(std::move(list));
  }
  const Value::Dict* dict = value.as_dict();
  if (dict == nullptr) return value;
  if (dict->items.size() == 1) {
    if (const Value* tuple = value.Find(kTuple); tuple != nullptr && tuple->as_sequence() != nullptr) {
      ValueList list;
      for (const Value& item : *tuple->as_sequence()) list.push_back(Untag(item));
      return Value::MakeTuple(std::move(list));
    }
    if (const auto name = value.GetString(kDType)) {
      if (const auto dtype = DTypeFromName(*name)) return Value(*dtype);
    }
  }
  Value out = Value::MakeDict();
  for (const auto& [key, item] : dict->items) out.Set(*key.as_string(), Untag(item));
  return out;
}

}  // namespace

std::string EncodeExtras(const Value& extras, const std::string& words, std::vector<std::string>* dropped) {
  Value out = Value::MakeDict();
  out.Set("words", Value(words));
  auto values = Tag(extras, "", dropped);
  out.Set("values", values ? std::move(*values) : Value::MakeDict());
  return ToJson(out, 0);
}

Result<Extras> DecodeExtras(const std::string& text) {
  auto json = ParseJson(text);
  if (!json) return std::move(json).error().WithTensor("__metadata__.crossdock_extras");
  const Value* values = json->Find("values");
  const auto words = json->GetString("words");
  if (values == nullptr || values->as_dict() == nullptr || !words) {
    return MakeError(ErrorCode::kCorrupt, "the metadata `crossdock_extras` is not what it should be")
        .WithExpected(R"({"words": ..., "values": {...}})")
        .WithFound(Printable(text, 80));
  }
  return Extras{Untag(*values), *words};
}

}  // namespace crossdock::dialects::hf
