// SPDX-License-Identifier: Apache-2.0
/// \file  What header and index share over simdjson's on-demand parser: it checks only what is looked at, so every value
/// of a hostile document is looked at here. Errors: kCorrupt. Private to this room's .cc files.
#pragma once

#include <simdjson.h>

#include <bit>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::formats::safetensors::scan {

inline constexpr int kMaxDepth = 64;  // recursion is bounded; no known file nests beyond 3

[[nodiscard]] inline Error JsonError(const std::string& what, simdjson::error_code code, const std::string& path) {
  const bool utf8 = code == simdjson::UTF8_ERROR;
  return MakeError(ErrorCode::kCorrupt, (utf8 ? "invalid UTF-8 in " : "invalid JSON in ") + what)
      .WithPath(path)
      .WithFound(simdjson::error_message(code));
}

/// Reads a value to its end, children included, so that a mistake in it is found.
[[nodiscard]] inline simdjson::error_code Consume(simdjson::ondemand::value value, int depth = 0) {
  namespace od = simdjson::ondemand;
  if (depth > kMaxDepth) return simdjson::DEPTH_ERROR;
  od::json_type type{};
  if (const auto e = value.type().get(type)) return e;
  switch (type) {
    case od::json_type::object: {
      od::object object;
      if (const auto e = value.get_object().get(object)) return e;
      for (auto field_or : object) {
        od::field field;
        if (const auto e = std::move(field_or).get(field)) return e;
        std::string_view key;
        if (const auto e = field.unescaped_key().get(key)) return e;
        if (const auto e = Consume(field.value(), depth + 1)) return e;
      }
      return simdjson::SUCCESS;
    }
    case od::json_type::array: {
      od::array array;
      if (const auto e = value.get_array().get(array)) return e;
      for (auto item_or : array) {
        od::value item;
        if (const auto e = std::move(item_or).get(item)) return e;
        if (const auto e = Consume(item, depth + 1)) return e;
      }
      return simdjson::SUCCESS;
    }
    case od::json_type::string: {
      std::string_view text;
      return value.get_string().get(text);
    }
    case od::json_type::number: {
      double number = 0;
      return value.get_double().get(number);
    }
    case od::json_type::boolean: {
      bool flag = false;
      return value.get_bool().get(flag);
    }
    case od::json_type::null:
      break;
  }
  bool null = false;
  if (const auto e = value.is_null().get(null)) return e;
  return null ? simdjson::SUCCESS : simdjson::N_ATOM_ERROR;
}

/// On-demand stops at the closing brace; nothing but white space may follow.
[[nodiscard]] inline bool AtEnd(simdjson::ondemand::document* document) {
  const char* next = nullptr;
  return document->current_location().get(next) == simdjson::OUT_OF_BOUNDS;
}

/// The document must be an object from its first character on (a byte order mark is none).
[[nodiscard]] inline bool StartsWithBrace(std::string_view json) {
  const std::size_t first = json.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && json[first] == '{';
}

/// Collects names and finds one that is there twice. A name is compared with those of its own hash only, for names of one file begin
/// alike. Where a file's names crowd the table, whatever it does to make them, they are sorted instead: no file makes this take long.
class NameSet {
 public:
  explicit NameSet(std::size_t names) : slots_(std::bit_ceil(2 * names + 1), nullptr) {}
  /// False when an equal name was added before. The name stays where it is as long as this does.
  [[nodiscard]] bool Add(const std::string* name) {
    if (crowded_) return sorted_.insert(*name).second;
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = std::hash<std::string_view>()(*name) & mask;
    for (int steps = 0; slots_[at] != nullptr; at = (at + 1) & mask) {
      if (*slots_[at] == *name) return false;
      if (++steps < kMaxSteps) continue;
      crowded_ = true;
      for (const std::string* other : slots_) {
        if (other != nullptr) sorted_.insert(*other);
      }
      return sorted_.insert(*name).second;
    }
    slots_[at] = name;
    return true;
  }

 private:
  static constexpr int kMaxSteps = 128;  // more than names that nobody chose need in a table that is half empty
  std::vector<const std::string*> slots_;
  bool crowded_ = false;
  std::set<std::string_view> sorted_;
};

/// The first of `items` whose name is there before, or null.
template <typename Items>
[[nodiscard]] const std::string* FindTwice(const Items& items) {
  NameSet names(items.size());
  for (const auto& item : items) {
    if (!names.Add(&item.name)) return &item.name;
  }
  return nullptr;
}

}  // namespace crossdock::formats::safetensors::scan
