// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/digits.h"
#include "formats/safetensors/json_scan.h"
#include "io/storage.h"

namespace crossdock::formats::safetensors {
namespace {

namespace od = simdjson::ondemand;

class IndexParser {
 public:
  explicit IndexParser(const std::string& path) : path_(path) {}

  Result<Index> Parse(std::string* json) {
    const std::size_t length = json->size();
    if (!scan::StartsWithBrace(*json)) return Invalid(simdjson::TAPE_ERROR);
    json->resize(length + simdjson::SIMDJSON_PADDING, '\0');
    od::parser parser;
    od::document document;
    if (const auto e = parser.iterate(simdjson::padded_string_view(json->data(), length, json->size())).get(document)) {
      return Invalid(e);
    }
    od::object object;
    if (const auto e = document.get_object().get(object)) return Invalid(e);
    bool has_map = false;
    bool has_metadata = false;
    for (auto field_or : object) {
      od::field field;
      if (const auto e = std::move(field_or).get(field)) return Invalid(e);
      std::string_view key;
      if (const auto e = field.unescaped_key().get(key)) return Invalid(e);
      if (key == "weight_map") {
        if (has_map) return Duplicate(key);
        has_map = true;
        CROSSDOCK_RETURN_IF_ERROR(ParseMap(field.value()));
      } else if (key == "metadata") {
        if (has_metadata) return Duplicate(key);
        has_metadata = true;
        CROSSDOCK_RETURN_IF_ERROR(ParseMetadata(field.value()));
      } else if (const auto e = scan::Consume(field.value())) {
        return Invalid(e);
      }
    }
    if (!scan::AtEnd(&document)) return Invalid(simdjson::TRAILING_CONTENT);
    if (!has_map) {
      return MakeError(ErrorCode::kCorrupt, "the index has no `weight_map`").WithPath(path_);
    }
    CROSSDOCK_RETURN_IF_ERROR(CheckNames());
    NumberFiles();
    return std::move(index_);
  }

 private:
  Error Invalid(simdjson::error_code code) const { return scan::JsonError("index", code, path_); }
  Error Duplicate(std::string_view name) const {
    return MakeError(ErrorCode::kCorrupt, fmt::format("duplicate key `{}` in {}", Printable(name), Printable(path_)))
        .WithPath(path_)
        .WithTensor(std::string(name))
        .WithHint("readers disagree on which of the two counts; write the index anew");
  }

  Status ParseMap(od::value value) {
    od::object object;
    if (value.get_object().get(object)) {
      return MakeError(ErrorCode::kCorrupt, "`weight_map` is no object").WithPath(path_);
    }
    std::string last_file;  // neighbours mostly share a file: the map is asked seldom
    std::int32_t last = -1;
    for (auto field_or : object) {
      od::field field;
      if (const auto e = std::move(field_or).get(field)) return Invalid(e);
      std::string_view name;
      std::string_view file;
      if (const auto e = field.unescaped_key().get(name)) return Invalid(e);
      if (field.value().get_string().get(file)) {
        return MakeError(ErrorCode::kCorrupt, "`weight_map` names no file").WithPath(path_).WithTensor(std::string(name))
            .WithExpected("a string");
      }
      if (last < 0 || file != last_file) {
        const auto [at, added] = numbers_.try_emplace(std::string(file), static_cast<std::int32_t>(index_.files.size()));
        if (added) {
          auto safe = io::CheckRelativePath(file);
          if (!safe) {
            return MakeError(ErrorCode::kUnsafe, "the index names a file outside its directory").WithPath(path_)
                .WithTensor(std::string(name)).WithFound(Printable(file));
          }
          index_.files.emplace_back(file);
        }
        last = at->second;
        last_file = file;
      }
      index_.items.push_back({std::string(name), last});
    }
    return OkStatus();
  }

  Status ParseMetadata(od::value value) {
    od::json_type type{};
    if (const auto e = value.type().get(type)) return Invalid(e);
    od::object object;
    if (type != od::json_type::object) {
      if (const auto e = scan::Consume(value)) return Invalid(e);
      return OkStatus();
    }
    if (const auto e = value.get_object().get(object)) return Invalid(e);
    for (auto field_or : object) {
      od::field field;
      if (const auto e = std::move(field_or).get(field)) return Invalid(e);
      std::string_view key;
      if (const auto e = field.unescaped_key().get(key)) return Invalid(e);
      od::value item = field.value();
      od::json_type item_type{};
      if (const auto e = item.type().get(item_type)) return Invalid(e);
      if (key != "total_size" || item_type != od::json_type::number) {
        if (const auto e = scan::Consume(item)) return Invalid(e);
        continue;
      }
      double number = 0;  // Python 2 era tools wrote it as a float; below 2^53 that is exact
      if (const auto e = item.get_double().get(number)) return Invalid(e);
      if (number >= 0 && number < 9e15) index_.total_size = static_cast<std::int64_t>(number);
    }
    return OkStatus();
  }

  Status CheckNames() const {
    const std::string* twice = scan::FindTwice(index_.items);
    return twice == nullptr ? OkStatus() : Status(Duplicate(*twice));
  }

  void NumberFiles() {
    std::vector<std::string> sorted = index_.files;
    std::sort(sorted.begin(), sorted.end(), NaturalLess);
    std::map<std::string_view, std::int32_t> place;
    for (const std::string& file : sorted) place.emplace(file, static_cast<std::int32_t>(place.size()));
    std::vector<std::int32_t> renumbered;
    for (const std::string& file : index_.files) renumbered.push_back(place.at(file));
    for (Index::Item& item : index_.items) item.file = renumbered[static_cast<std::size_t>(item.file)];
    index_.files = std::move(sorted);
  }

  const std::string& path_;
  Index index_;
  std::map<std::string, std::int32_t> numbers_;
};

/// As Python's json with ensure_ascii. `text` is valid UTF-8: names come from checked JSON or were checked by the writer.
std::string PythonString(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '"' || byte == '\\') {
      out += {'\\', text[i++]};
    } else if (byte >= 0x20 && byte < 0x7f) {
      out += text[i++];
    } else if (byte == '\n' || byte == '\r' || byte == '\t' || byte == '\b' || byte == '\f') {
      out += '\\';
      out += byte == '\n' ? 'n' : byte == '\r' ? 'r' : byte == '\t' ? 't' : byte == '\b' ? 'b' : 'f';
      ++i;
    } else {
      const std::size_t size = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
      std::uint32_t code = size == 1 ? byte : byte & (0xffU >> (size + 1));
      for (std::size_t k = 1; k < size && i + k < text.size(); ++k) {
        code = code << 6U | (static_cast<unsigned char>(text[i + k]) & 0x3fU);
      }
      i += size;
      if (code >= 0x10000) {
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10U), 0xdc00 + (code & 0x3ffU));
      } else {
        out += fmt::format("\\u{:04x}", code);
      }
    }
  }
  return out + "\"";
}

}  // namespace

Result<Index> ParseIndex(std::string json, const std::string& path) { return IndexParser(path).Parse(&json); }

bool NaturalLess(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!IsDigit(a[i]) || !IsDigit(b[j])) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i, ++j;
      continue;
    }
    const auto run = [](std::string_view text, std::size_t* at) {
      while (*at < text.size() && text[*at] == '0') ++*at;
      const std::size_t from = *at;
      while (*at < text.size() && IsDigit(text[*at])) ++*at;
      return text.substr(from, *at - from);
    };
    const std::string_view x = run(a, &i);
    const std::string_view y = run(b, &j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // equal but for leading zeros
}

std::string IndexHead(std::int64_t total_parameters, std::int64_t total_size) {
  return fmt::format("{{\n  \"metadata\": {{\n    \"total_parameters\": {},\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{",
                     total_parameters, total_size);
}

std::string IndexLine(std::string_view name, std::string_view file, bool last) {
  return fmt::format("\n    {}: {}{}", PythonString(name), PythonString(file), last ? "\n  " : ",");
}

std::string IndexTail() { return "}\n}\n"; }

}  // namespace crossdock::formats::safetensors
