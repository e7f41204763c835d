// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/random_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace crossdock::dialects::hf {
namespace {

constexpr std::string_view kTupleTag = "__tuple__";
constexpr std::string_view kBytesTag = "__bytes__";
constexpr std::string_view kTensorTag = "__tensor__";
constexpr std::string_view kObjectTag = "__object__";
constexpr std::pair<Opaque::Form, std::string_view> kForms[] = {{Opaque::Form::kGlobal, "global"}, {Opaque::Form::kReduce, "reduce"}, {Opaque::Form::kNewObj, "new"}};

std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
  return out;
}

std::optional<std::string> Unhex(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (text.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

Value Tagged(std::string_view tag, Value value) {
  Value out = Value::MakeDict();
  out.Set(tag, std::move(value));
  return out;
}

Error NotCarried(const std::string& what) { return MakeError(ErrorCode::kUnsupported, fmt::format("random states hold {}, which has no form in full-state", what)); }

Result<Value> TagRandom(const Value& value);

Result<ValueList> TagAll(const ValueList& items) {
  ValueList out;
  for (const Value& item : items) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value tagged, TagRandom(item));
    out.push_back(std::move(tagged));
  }
  return out;
}

Result<Value> TagTensor(const TensorValue& tensor) {
  const Result<std::int64_t> size = ByteSize(tensor.dtype, tensor.shape);
  const bool whole = size && tensor.bytes != nullptr && tensor.storage_offset == 0 && tensor.strides == RowMajorStrides(tensor.shape) && static_cast<std::int64_t>(tensor.bytes->size()) >= *size;
  if (!whole) return NotCarried("a tensor that is a view or has no data");
  ValueList shape;
  for (const std::int64_t n : tensor.shape) shape.emplace_back(n);
  return Tagged(kTensorTag, Value::MakeList({Value(DTypeName(tensor.dtype)), Value::MakeList(std::move(shape)), Value(Hex(std::string_view(*tensor.bytes).substr(0, static_cast<std::size_t>(*size))))}));
}

Result<Value> TagObject(const Opaque& object) {
  const auto* const form = std::ranges::find(kForms, object.form, &std::pair<Opaque::Form, std::string_view>::first);
  if (form == std::end(kForms) || !object.items.empty() || !object.entries.empty()) return NotCarried(fmt::format("an object of `{}.{}`", Printable(object.module), Printable(object.name)));
  CROSSDOCK_ASSIGN_OR_RETURN(ValueList args, TagAll(object.args));
  ValueList parts = {Value(form->second), Value(object.module), Value(object.name), Value::MakeList(std::move(args))};
  if (object.state != nullptr) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value state, TagRandom(*object.state));
    parts.push_back(std::move(state));
  }
  return Tagged(kObjectTag, Value::MakeList(std::move(parts)));
}

Result<Value> TagRandom(const Value& value) {
  if (const Value::Bytes* bytes = value.as_bytes()) return Tagged(kBytesTag, Value(Hex(bytes->data)));
  if (const TensorValue* tensor = value.as_tensor()) return TagTensor(*tensor);
  if (const Opaque* object = value.as_opaque()) return TagObject(*object);
  if (value.as_bigint() != nullptr || value.as_dtype() != nullptr) return NotCarried("a number or type of another kind");
  if (const ValueList* items = value.as_sequence()) {
    CROSSDOCK_ASSIGN_OR_RETURN(ValueList list, TagAll(*items));
    Value out = Value::MakeList(std::move(list));
    return value.is_tuple() ? Tagged(kTupleTag, std::move(out)) : out;
  }
  if (const Value::Dict* dict = value.as_dict()) {
    Value out = Value::MakeDict();
    for (const auto& [key, item] : dict->items) {
      const std::string* name = key.as_string();
      if (name == nullptr) return NotCarried("a key that is no text");
      CROSSDOCK_ASSIGN_OR_RETURN(Value tagged, TagRandom(item));
      out.Set(*name, std::move(tagged));
    }
    return out;
  }
  return value;
}

Error NoRandomStates(const std::string& why) {
  return MakeError(ErrorCode::kCorrupt, fmt::format("the metadata `{}` is not what it should be: {}", kRandomStatesKey, why));
}

Result<Value> UntagRandom(const Value& value);

Result<ValueList> UntagAll(const ValueList& items) {
  ValueList out;
  for (const Value& item : items) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value plain, UntagRandom(item));
    out.push_back(std::move(plain));
  }
  return out;
}

Result<Value> UntagTensor(const ValueList& parts) {
  const bool three = parts.size() == 3 && parts[0].as_string() != nullptr && parts[1].as_sequence() != nullptr && parts[2].as_string() != nullptr;
  const std::optional<DType> dtype = three ? DTypeFromName(*parts[0].as_string()) : std::nullopt;
  const std::optional<std::string> bytes = three ? Unhex(*parts[2].as_string()) : std::nullopt;
  if (!dtype || !bytes) return NoRandomStates("a tensor has no dtype, shape and data");
  TensorValue tensor;
  tensor.dtype = *dtype;
  for (const Value& n : *parts[1].as_sequence()) {
    if (n.as_int() == nullptr || *n.as_int() < 0) return NoRandomStates("a tensor's shape is none");
    tensor.shape.push_back(*n.as_int());
  }
  const Result<std::int64_t> size = ByteSize(tensor.dtype, tensor.shape);
  if (!size || *size != static_cast<std::int64_t>(bytes->size())) return NoRandomStates("a tensor's data has another length than its shape says");
  tensor.strides = RowMajorStrides(tensor.shape);
  tensor.storage = "0";
  tensor.storage_numel = CheckedCount(tensor.shape);
  tensor.bytes = std::make_shared<const std::string>(*bytes);
  return Value(std::move(tensor));
}

Result<Value> UntagObject(const ValueList& parts) {
  const bool named = (parts.size() == 4 || parts.size() == 5) && parts[0].as_string() != nullptr && parts[1].as_string() != nullptr && parts[2].as_string() != nullptr && parts[3].as_sequence() != nullptr;
  const auto* const form = named ? std::ranges::find(kForms, *parts[0].as_string(), &std::pair<Opaque::Form, std::string_view>::second) : std::end(kForms);
  if (form == std::end(kForms)) return NoRandomStates("an object has no form, module, name and arguments");
  Opaque object;
  object.form = form->first;
  object.module = *parts[1].as_string();
  object.name = *parts[2].as_string();
  CROSSDOCK_ASSIGN_OR_RETURN(object.args, UntagAll(*parts[3].as_sequence()));
  if (parts.size() == 5) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value state, UntagRandom(parts[4]));
    object.state = std::make_shared<Value>(std::move(state));
  }
  return Value(std::move(object));
}

Result<Value> UntagRandom(const Value& value) {
  if (const ValueList* items = value.as_sequence()) {
    CROSSDOCK_ASSIGN_OR_RETURN(ValueList list, UntagAll(*items));
    return Value::MakeList(std::move(list));
  }
  const Value::Dict* dict = value.as_dict();
  if (dict == nullptr) return value;
  if (dict->items.size() == 1) {
    const Value& inner = dict->items.front().second;
    const std::string& tag = *dict->items.front().first.as_string();
    if (tag == kBytesTag && inner.as_string() != nullptr) {
      std::optional<std::string> bytes = Unhex(*inner.as_string());
      if (!bytes) return NoRandomStates("bytes are no hexadecimal digits");
      return Value(Value::Bytes{*std::move(bytes)});
    }
    if (inner.as_sequence() != nullptr) {
      if (tag == kTensorTag) return UntagTensor(*inner.as_sequence());
      if (tag == kObjectTag) return UntagObject(*inner.as_sequence());
      if (tag == kTupleTag) {
        CROSSDOCK_ASSIGN_OR_RETURN(ValueList list, UntagAll(*inner.as_sequence()));
        return Value::MakeTuple(std::move(list));
      }
    }
  }
  Value out = Value::MakeDict();
  for (const auto& [key, item] : dict->items) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value plain, UntagRandom(item));
    out.Set(*key.as_string(), std::move(plain));
  }
  return out;
}

}  // namespace

Result<std::string> EncodeRandomStates(const RandomStates& random) {
  CROSSDOCK_ASSIGN_OR_RETURN(Value states, TagRandom(random.states));
  Value out = Value::MakeDict();
  out.Set("layout", Value(random.layout));
  out.Set("states", std::move(states));
  return ToJson(out, 0);
}

Result<RandomStates> DecodeRandomStates(const std::string& text) {
  const Result<Value> json = ParseJson(text);
  if (!json) return NoRandomStates(json.error().message);
  const Value* states = json->Find("states");
  const std::optional<std::string> layout = json->GetString("layout");
  if (states == nullptr || states->as_dict() == nullptr || !layout) return NoRandomStates("it has no layout and states");
  RandomStates out;
  out.layout = *layout;
  CROSSDOCK_ASSIGN_OR_RETURN(out.states, UntagRandom(*states));
  return out;
}

}  // namespace crossdock::dialects::hf
