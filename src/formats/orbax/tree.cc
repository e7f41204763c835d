// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace crossdock::formats::orbax {
namespace {

constexpr std::int64_t kIndexKey = 1;
constexpr std::int64_t kNameKey = 2;
constexpr std::array<std::string_view, 5> kPlaceholders = {"None", "Dict", "List", "Tuple", "NamedTuple"};

Error Malformed(std::string what) { return MakeError(ErrorCode::kCorrupt, "`_METADATA` of an Orbax item is malformed: " + std::move(what)); }

Result<Value> ReadKey(const Value& json) {
  const std::optional<std::string> key = json.GetString("key");
  const std::optional<std::int64_t> type = json.GetInt("key_type");
  if (!key || !type) return Malformed("a key without `key` or `key_type`").WithFound(ToJson(json, 0));
  if (*type == kNameKey) return Value(*key);
  if (*type != kIndexKey) return Malformed("a key of an unknown type").WithFound(std::to_string(*type));
  std::int64_t index = 0;
  const auto [end, error] = std::from_chars(key->data(), key->data() + key->size(), index);
  if (error != std::errc{} || end != key->data() + key->size() || index < 0) return Malformed("an index that is no number").WithFound("`" + Printable(*key) + "`");
  return Value(index);
}

Result<Value> ReadRow(const Value& json) {
  const Value* keys = json.Find("key_metadata");
  if (keys == nullptr || keys->as_sequence() == nullptr) return Malformed("a leaf without `key_metadata`");
  ValueList path;
  for (const Value& key : *keys->as_sequence()) {
    CROSSDOCK_ASSIGN_OR_RETURN(Value part, ReadKey(key));
    path.push_back(std::move(part));
  }
  const std::optional<std::string> type = json.GetString("value_metadata.value_type");
  if (!type) return Malformed("a leaf without `value_type`");
  Value row = Value::MakeDict();
  row.Set("path", Value::MakeList(std::move(path)));
  row.Set("value_type", *type);
  return row;
}

std::string KeyText(const Value& key) { return key.as_string() != nullptr ? *key.as_string() : std::to_string(*key.as_int()); }

/// As Python prints a string in a container.
std::string PythonString(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      (out += '\\') += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      (out += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + quote;
}

Value Row(const Value& row, const std::function<Shape(const std::string&)>& write_shape, std::vector<std::string>* keys) {
  ValueList key_metadata;
  for (const Value& key : *row.Find("path")->as_sequence()) {
    keys->push_back(KeyText(key));
    Value part = Value::MakeDict();
    part.Set("key", keys->back());
    part.Set("key_type", key.as_int() != nullptr ? kIndexKey : kNameKey);
    key_metadata.push_back(std::move(part));
  }
  const std::string type = *row.GetString("value_type");
  Value value = Value::MakeDict();
  value.Set("value_type", type);
  value.Set("skip_deserialize", !HasArray(type) && type != "string");
  if (type == "jax.Array") {
    ValueList sizes;
    for (const std::int64_t size : write_shape(fmt::format("{}", fmt::join(*keys, ".")))) sizes.emplace_back(size);
    value.Set("write_shape", Value::MakeList(std::move(sizes)));
  }
  Value out = Value::MakeDict();
  out.Set("key_metadata", Value::MakeList(std::move(key_metadata)));
  out.Set("value_metadata", std::move(value));
  return out;
}

}  // namespace

bool HasArray(std::string_view value_type) {
  return value_type != "string" && std::ranges::find(kPlaceholders, value_type) == kPlaceholders.end();
}

Result<std::string> NameOfPath(const Value& path) {
  const ValueList* keys = path.as_sequence();
  if (keys == nullptr) return Malformed("a path that is no list");
  std::string name;
  for (std::size_t i = 0; i < keys->size(); ++i) {
    const Value& key = (*keys)[i];
    if (key.as_string() == nullptr && key.as_int() == nullptr) return Malformed("a key that is neither a name nor an index");
    if (i > 0) name += '.';
    name += KeyText(key);
  }
  return name;
}

Result<Tree> ParseTree(std::string_view text) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Value json, ParseJson(text));
  const Value* rows = json.as_dict() != nullptr ? json.Find("tree_metadata") : nullptr;
  if (rows == nullptr || rows->as_dict() == nullptr) return Malformed("no `tree_metadata`");
  Tree out;
  for (const auto& [key, value] : rows->as_dict()->items) {
    auto row = ReadRow(value);
    if (!row) return std::move(row).error().WithTensor(*key.as_string());
    out.rows.mutable_sequence()->push_back(*std::move(row));
  }
  out.use_ocdbt = json.GetBool("use_ocdbt");
  out.use_zarr3 = json.GetBool("use_zarr3");
  out.stores_zeros = json.GetBool("store_array_data_equal_to_fill_value").value_or(false);
  return out;
}

std::string PythonTuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (std::size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : ", ") + PythonString(items[i]);
  return out + (items.size() == 1 ? ",)" : ")");
}

std::string PrintTree(const Tree& tree, const std::function<Shape(const std::string&)>& write_shape) {
  ValueDict rows;
  for (const Value& row : *tree.rows.as_sequence()) {
    std::vector<std::string> keys;
    Value value = Row(row, write_shape, &keys);
    rows.emplace_back(PythonTuple(keys), std::move(value));
  }
  Value json = Value::MakeDict();
  json.Set("tree_metadata", Value::MakeDict(std::move(rows)));
  json.Set("use_ocdbt", tree.use_ocdbt.value_or(true));
  json.Set("use_zarr3", tree.use_zarr3.value_or(true));
  json.Set("store_array_data_equal_to_fill_value", tree.stores_zeros);
  json.Set("custom_metadata", Value());
  return ToJson(json, 0);
}

}  // namespace crossdock::formats::orbax
