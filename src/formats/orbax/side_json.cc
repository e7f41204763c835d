// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/side_json.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "formats/orbax/tree.h"

namespace crossdock::formats::orbax {
namespace {

constexpr std::string_view kOneDevice = R"({"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"})";

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    unsigned group = 0;
    for (std::size_t k = 0; k < 3; ++k) group = group << 8U | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? kLetters[group >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

/// Calls visit(name, row) for rows of one type.
template <typename Visit>
void ForEach(const Value& rows, std::string_view type, Visit visit) {
  for (const Value& row : *rows.as_sequence()) {
    if (row.GetString("value_type") != type) continue;
    const auto name = NameOfPath(*row.Find("path"));
    CROSSDOCK_CHECK(name.has_value());  // looked at when the tree was taken
    visit(*name, row);
  }
}

Value SizesJson(const Shape& shape) {
  ValueList sizes;
  for (const std::int64_t size : shape) sizes.emplace_back(size);
  return Value::MakeList(std::move(sizes));
}

}  // namespace

std::string ShardingJson(const Value& rows) {
  ValueDict out;
  ForEach(rows, "jax.Array", [&](const std::string& name, const Value&) { out.emplace_back(Base64(name), Value(kOneDevice)); });
  return out.empty() ? "" : ToJson(Value::MakeDict(std::move(out)), 0);
}

std::string StringsJson(const Value& rows) {
  ValueDict out;
  ForEach(rows, "string", [&](const std::string& name, const Value& row) { out.emplace_back(name, Value(row.GetString("text").value_or(""))); });
  return out.empty() ? "" : ToJson(Value::MakeDict(std::move(out)), 0);
}

std::string ArrayMetadatasJson(const Value& rows, const std::function<Shape(const std::string&)>& chunk_shape) {
  ValueList out;
  ForEach(rows, "jax.Array", [&](const std::string& name, const Value& row) {
    Value array = Value::MakeDict();
    array.Set("param_name", name);
    array.Set("write_shape", SizesJson(chunk_shape(name)));
    array.Set("chunk_shape", SizesJson(chunk_shape(name)));
    const Value* extension = row.Find("ext_metadata");
    array.Set("ext_metadata", extension != nullptr ? *extension : Value());
    Value item = Value::MakeDict();
    item.Set("array_metadata", std::move(array));
    out.push_back(std::move(item));
  });
  if (out.empty()) return "";
  Value json = Value::MakeDict();
  json.Set("array_metadatas", Value::MakeList(std::move(out)));
  return ToJson(json, 0);
}

std::string StepJson(const std::vector<std::string>& items, const std::string& handler, const Value& custom_metadata) {
  Value json = Value::MakeDict();
  Value handlers(handler);
  if (!items.empty()) {
    handlers = Value::MakeDict();
    for (const std::string& item : items) handlers.Set(item, handler);
  }
  json.Set("item_handlers", std::move(handlers));
  json.Set("metrics", Value::MakeDict());
  json.Set("performance_metrics", Value::MakeDict());
  json.Set("init_timestamp_nsecs", 1);  // no clock: equal checkpoints have equal bytes
  json.Set("commit_timestamp_nsecs", 1);
  json.Set("custom_metadata", custom_metadata);
  return ToJson(json, 0);
}

}  // namespace crossdock::formats::orbax
