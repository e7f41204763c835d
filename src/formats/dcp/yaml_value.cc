// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/yaml_value.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <exception>
#include <optional>
#include <string_view>

namespace crossdock::formats::dcp {
namespace {

constexpr int kMaxDepth = 100;
constexpr int kMaxNodes = 200'000;

std::optional<bool> Boolean(std::string_view s) {
  for (std::string_view yes : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (s == yes) return true;
  }
  for (std::string_view no : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (s == no) return false;
  }
  return std::nullopt;
}

template <typename T>
std::optional<T> Number(std::string_view s) {
  if (!s.empty() && s.front() == '+') s.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size() || s.empty()) return std::nullopt;
  return value;
}

/// A plain scalar by its look.
Value Resolve(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return Value();
  if (const auto v = Boolean(text)) return Value(*v);
  if (const auto v = Number<std::int64_t>(text)) return Value(*v);
  const bool numeric = text.find_first_not_of("+-.0123456789eE") == std::string::npos;
  if (numeric) {
    if (const auto v = Number<double>(text)) return Value(*v);
  }
  if (text == ".inf" || text == "+.inf" || text == ".Inf") return Value(HUGE_VAL);
  if (text == "-.inf" || text == "-.Inf") return Value(-HUGE_VAL);
  return Value(text);
}

class Converter {
 public:
  Result<Value> Convert(const YAML::Node& node, int depth) {
    if (++nodes_ > kMaxNodes || depth > kMaxDepth) {
      return MakeError(ErrorCode::kUnsafe, "a YAML file unfolds to more than any configuration holds");
    }
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return node.Tag() == "!" ? Value(node.Scalar()) : Resolve(node.Scalar());  // "!" marks a quoted text
      case YAML::NodeType::Sequence: return List(node, depth);
      case YAML::NodeType::Map: return Map(node, depth);
      case YAML::NodeType::Null: case YAML::NodeType::Undefined: break;
    }
    return Value();
  }

 private:
  Result<Value> List(const YAML::Node& node, int depth) {
    ValueList items;
    for (const YAML::Node& item : node) {
      CROSSDOCK_ASSIGN_OR_RETURN(Value value, Convert(item, depth + 1));
      items.push_back(std::move(value));
    }
    return Value::MakeList(std::move(items));
  }

  Result<Value> Map(const YAML::Node& node, int depth) {
    ValueDict items;
    for (const auto& item : node) {
      CROSSDOCK_ASSIGN_OR_RETURN(Value key, Convert(item.first, depth + 1));
      CROSSDOCK_ASSIGN_OR_RETURN(Value value, Convert(item.second, depth + 1));
      items.emplace_back(std::move(key), std::move(value));
    }
    return Value::MakeDict(std::move(items));
  }

  int nodes_ = 0;
};

}  // namespace

Result<Value> ParseYaml(const std::string& text) {
  try {  // yaml-cpp reports by exceptions; none leaves this function
    return Converter().Convert(YAML::Load(text), 0);
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kCorrupt, "a YAML file is malformed: " + Printable(error.what()));
  }
}

}  // namespace crossdock::formats::dcp
