// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/checked_math.h"
#include "base/endian.h"
#include "formats/safetensors/json_scan.h"

namespace crossdock::formats::safetensors {
namespace {

namespace od = simdjson::ondemand;

/// Walks one header. Members are the state of the walk; the result is `header`.
class Parser {
 public:
  Parser(std::int64_t data_bytes, const std::string& path) : data_bytes_(data_bytes), path_(path) {}

  Status Parse(std::string* json) {
    const std::size_t length = json->size();
    if (!scan::StartsWithBrace(*json)) return Invalid(simdjson::TAPE_ERROR);
    json->resize(length + simdjson::SIMDJSON_PADDING, '\0');
    od::parser parser(static_cast<std::size_t>(kMaxHeaderBytes) + 1);
    od::document document;
    if (const auto e = parser.iterate(simdjson::padded_string_view(json->data(), length, json->size())).get(document)) {
      return Invalid(e);
    }
    od::object object;
    if (const auto e = document.get_object().get(object)) return Invalid(e);
    for (auto field_or : object) {
      od::field field;
      if (const auto e = std::move(field_or).get(field)) return Invalid(e);
      std::string_view name;
      if (const auto e = field.unescaped_key().get(name)) return Invalid(e);
      if (name == "__metadata__") {
        CROSSDOCK_RETURN_IF_ERROR(ParseMetadata(field.value()));
      } else {
        CROSSDOCK_RETURN_IF_ERROR(ParseTensor(name, field.value()));
      }
    }
    if (!scan::AtEnd(&document)) return Invalid(simdjson::TRAILING_CONTENT);
    CROSSDOCK_RETURN_IF_ERROR(CheckNames());
    return CheckOffsets();
  }

  Header header;

 private:
  Error Invalid(simdjson::error_code code) const { return scan::JsonError("header", code, path_); }
  Error InvalidField(std::string_view tensor, std::string_view field, std::string expected) const {
    return MakeError(ErrorCode::kCorrupt, fmt::format("invalid JSON in header: bad `{}`", field))
        .WithPath(path_)
        .WithTensor(std::string(tensor))
        .WithExpected(std::move(expected));
  }
  Error DuplicateKey(std::string_view name) const {
    return MakeError(ErrorCode::kCorrupt, fmt::format("duplicate key `{}` in {}", Printable(name), Printable(path_)))
        .WithPath(path_)
        .WithTensor(std::string(name))
        .WithHint("readers disagree on which of the two counts; write the file anew");
  }

  Status ParseMetadata(od::value value) {
    if (has_metadata_) return DuplicateKey("__metadata__");
    has_metadata_ = true;
    od::json_type type{};
    if (const auto e = value.type().get(type)) return Invalid(e);
    if (type == od::json_type::null) {
      if (const auto e = scan::Consume(value)) return Invalid(e);
      return OkStatus();
    }
    od::object object;
    if (const auto e = value.get_object().get(object)) return Invalid(e);
    for (auto field_or : object) {
      od::field field;
      if (const auto e = std::move(field_or).get(field)) return Invalid(e);
      std::string_view key;
      std::string_view text;
      if (const auto e = field.unescaped_key().get(key)) return Invalid(e);
      if (field.value().get_string().get(text)) return InvalidField("__metadata__", key, "a string");
      header.metadata.emplace_back(key, text);
    }
    std::vector<std::string_view> keys;
    for (const auto& [key, text] : header.metadata) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    return twice == keys.end() ? OkStatus() : Status(DuplicateKey(*twice));
  }

  Status ParseTensor(std::string_view name, od::value value) {
    HeaderTensor tensor;
    tensor.name = name;
    bool dtype = false, shape = false, offsets = false;
    od::object object;
    if (value.get_object().get(object)) return InvalidField(name, "value", "an object");
    for (auto field_or : object) {
      od::field field;
      if (const auto e = std::move(field_or).get(field)) return Invalid(e);
      std::string_view key;
      if (const auto e = field.unescaped_key().get(key)) return Invalid(e);
      bool* seen = key == "dtype" ? &dtype : key == "shape" ? &shape : key == "data_offsets" ? &offsets : nullptr;
      if (seen == nullptr) {
        if (const auto e = scan::Consume(field.value())) return Invalid(e);
        continue;
      }
      if (*seen) return DuplicateKey(key);
      *seen = true;
      if (seen == &dtype) {
        CROSSDOCK_RETURN_IF_ERROR(ParseDType(field.value(), &tensor));
      } else if (seen == &shape) {
        CROSSDOCK_RETURN_IF_ERROR(ParseShape(field.value(), &tensor));
      } else {
        CROSSDOCK_RETURN_IF_ERROR(ParseOffsets(field.value(), &tensor));
      }
    }
    if (!dtype) return InvalidField(name, "dtype", "present");
    if (!shape) return InvalidField(name, "shape", "present");
    if (!offsets) return InvalidField(name, "data_offsets", "present");
    header.tensors.push_back(std::move(tensor));
    return OkStatus();
  }

  Status ParseDType(od::value value, HeaderTensor* tensor) const {
    std::string_view text;
    if (value.get_string().get(text)) return InvalidField(tensor->name, "dtype", "a string");
    const auto dtype = DTypeFromName(text);
    if (!dtype) return InvalidField(tensor->name, "dtype", "a safetensors dtype").WithFound(Printable(text));
    tensor->dtype = *dtype;
    return OkStatus();
  }

  /// A list of unsigned integers; a sign, a fraction or an exponent is refused as upstream does.
  std::optional<Error> ParseIntegers(od::value value, std::string_view name, std::string_view field,
                                     std::vector<std::int64_t>* out) const {
    out->clear();
    od::array array;
    if (value.get_array().get(array)) return InvalidField(name, field, "a list of unsigned integers");
    for (auto item_or : array) {
      od::value item;
      if (const auto e = std::move(item_or).get(item)) return Invalid(e);
      std::uint64_t number = 0;
      if (item.get_uint64().get(number)) return InvalidField(name, field, "a list of unsigned integers");
      const auto checked = CheckedFromU64(number);
      if (!checked) {
        return MakeError(ErrorCode::kCorrupt, fmt::format("overflow computing buffer size: `{}` is too large", field))
            .WithPath(path_)
            .WithTensor(std::string(name))
            .WithFound(std::to_string(number));
      }
      out->push_back(*checked);
    }
    return std::nullopt;
  }

  Status ParseShape(od::value value, HeaderTensor* tensor) {
    if (auto error = ParseIntegers(value, tensor->name, "shape", &numbers_)) return std::move(*error);
    auto shape = Dims::FromSpan(numbers_);
    if (!shape) return std::move(shape).error().WithPath(path_).WithTensor(tensor->name);
    tensor->shape = *shape;
    return OkStatus();
  }

  Status ParseOffsets(od::value value, HeaderTensor* tensor) {
    std::vector<std::int64_t>& range = numbers_;
    if (auto error = ParseIntegers(value, tensor->name, "data_offsets", &range)) return std::move(*error);
    if (range.size() != 2) {
      return InvalidField(tensor->name, "data_offsets", "two numbers").WithFound(std::to_string(range.size()));
    }
    tensor->bytes = {range[0], range[1] - range[0]};  // both >= 0, no overflow
    return OkStatus();
  }

  Status CheckNames() const {
    const std::string* twice = scan::FindTwice(header.tensors);
    return twice == nullptr ? OkStatus() : Status(DuplicateKey(*twice));
  }

  Status CheckOffsets() {
    const auto before = [](const HeaderTensor& a, const HeaderTensor& b) {
      return std::tuple(a.bytes.offset, a.bytes.end(), std::string_view(a.name)) <
             std::tuple(b.bytes.offset, b.bytes.end(), std::string_view(b.name));
    };
    // Most writers list tensors as they lie.
    if (!std::is_sorted(header.tensors.begin(), header.tensors.end(), before)) std::sort(header.tensors.begin(), header.tensors.end(), before);
    std::int64_t end = 0;
    for (const HeaderTensor& tensor : header.tensors) {
      if (tensor.bytes.offset != end || tensor.bytes.length < 0) {
        return MakeError(ErrorCode::kCorrupt, "invalid offset for tensor")
            .WithPath(path_)
            .WithTensor(tensor.name)
            .WithExpected(fmt::format("data from byte {}, without a gap or an overlap", end))
            .WithFound(fmt::format("[{}, {}]", tensor.bytes.offset, tensor.bytes.end()));
      }
      CROSSDOCK_RETURN_IF_ERROR(CheckSize(tensor));
      end = tensor.bytes.end();
    }
    return CheckCovered(end);
  }

  Status CheckSize(const HeaderTensor& tensor) const {
    const auto in_tensor = [&](Error e) { return std::move(e).WithPath(path_).WithTensor(tensor.name); };
    const auto count = ElementCount(tensor.shape);
    const auto bits = count ? CheckedMul(*count, BitsOf(tensor.dtype)) : std::nullopt;
    if (!bits) {
      return in_tensor(MakeError(ErrorCode::kCorrupt, "overflow computing buffer size").WithFound(ToString(tensor.shape)));
    }
    if (*bits % 8 != 0) {
      return in_tensor(MakeError(ErrorCode::kCorrupt, "subbytes: the elements fill no whole number of bytes")
                           .WithFound(fmt::format("{} {}", DTypeName(tensor.dtype), ToString(tensor.shape))));
    }
    if (*bits / 8 != tensor.bytes.length) {
      return in_tensor(MakeError(ErrorCode::kCorrupt, "invalid shape, data type, or offset")
                           .WithExpected(fmt::format("{} bytes for {} {}", *bits / 8, DTypeName(tensor.dtype),
                                                     ToString(tensor.shape)))
                           .WithFound(fmt::format("{} bytes", tensor.bytes.length)));
    }
    return OkStatus();
  }

  Status CheckCovered(std::int64_t end) const {
    if (end == data_bytes_) return OkStatus();
    std::string message = "incomplete metadata, file not fully covered";
    std::string first;
    if (end > data_bytes_) {
      std::int64_t hit = 0;
      for (const HeaderTensor& tensor : header.tensors) {
        if (tensor.bytes.end() <= data_bytes_) continue;
        if (hit++ == 0) first = tensor.name;
      }
      message += fmt::format(": the file is cut and {} of {} tensors lie beyond its end", hit, header.tensors.size());
    } else {
      message += fmt::format(": {} bytes follow the last tensor", data_bytes_ - end);
    }
    return MakeError(ErrorCode::kCorrupt, std::move(message))
        .WithPath(path_)
        .WithTensor(std::move(first))
        .WithExpected(fmt::format("{} bytes of data", end))
        .WithFound(fmt::format("{} bytes of data", data_bytes_))
        .WithHint("an incomplete copy or download; fetch the file again");
  }

  std::int64_t data_bytes_;
  const std::string& path_;
  std::vector<std::int64_t> numbers_;   ///< of one list at a time: its memory serves for all
  bool has_metadata_ = false;
};

/// As serde_json prints a string: only what JSON forces is escaped, everything else stays UTF-8.
void AppendQuoted(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\b': *out += "\\b"; break;
      case '\f': *out += "\\f"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

}  // namespace

Result<Header> ParseHeader(std::string json, std::int64_t data_bytes, const std::string& path) {
  Parser parser(data_bytes, path);
  const std::size_t length = json.size();
  CROSSDOCK_RETURN_IF_ERROR(parser.Parse(&json));
  if (json[0] != '{') parser.header.notices.push_back(fmt::format("{}: white space before the header", Printable(path)));
  parser.header.data_start = 8 + static_cast<std::int64_t>(length);
  return std::move(parser.header);
}

Result<Header> ReadHeader(const io::ReadFile& file, std::int64_t size) {
  if (size < 8) {
    return MakeError(ErrorCode::kCorrupt, "header too small")
        .WithPath(file.path())
        .WithExpected("at least 8 bytes")
        .WithFound(fmt::format("a file of {} bytes", size))
        .WithHint("an incomplete copy or download; fetch the file again");
  }
  std::array<std::byte, 8> prefix{};
  CROSSDOCK_RETURN_IF_ERROR(file.ReadAt(0, prefix));
  const auto length = LoadLittle<std::uint64_t>(prefix.data());
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    return MakeError(ErrorCode::kCorrupt, "header too large")
        .WithPath(file.path())
        .WithExpected(fmt::format("at most {} bytes", kMaxHeaderBytes))
        .WithFound(fmt::format("{} bytes", length));
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > size - 8) {
    return MakeError(ErrorCode::kCorrupt, "invalid header length")
        .WithPath(file.path())
        .WithExpected(fmt::format("a header of {} bytes", header_bytes))
        .WithFound(fmt::format("a file of {} bytes", size))
        .WithHint("an incomplete copy or download; fetch the file again");
  }
  std::string json;
  json.reserve(static_cast<std::size_t>(header_bytes) + simdjson::SIMDJSON_PADDING);
  json.resize(static_cast<std::size_t>(header_bytes));
  CROSSDOCK_RETURN_IF_ERROR(file.ReadAt(8, std::as_writable_bytes(std::span(json.data(), json.size()))));
  return ParseHeader(std::move(json), size - 8 - header_bytes, file.path());
}

std::string PrintHeader(std::span<const HeaderTensor> tensors, const Metadata& metadata) {
  std::string out(8, '\0');
  out += '{';
  if (!metadata.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, text] : metadata) {
      if (out.back() != '{') out += ',';
      AppendQuoted(key, &out);
      out += ':';
      AppendQuoted(text, &out);
    }
    out += '}';
  }
  for (const HeaderTensor& tensor : tensors) {
    if (out.back() != '{') out += ',';
    AppendQuoted(tensor.name, &out);
    out += fmt::format(":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", DTypeName(tensor.dtype),
                       fmt::join(tensor.shape.begin(), tensor.shape.end(), ","), tensor.bytes.offset, tensor.bytes.end());
  }
  out += '}';
  while (out.size() % 8 != 0) out += ' ';
  StoreLittle<std::uint64_t>(out.data(), out.size() - 8);
  return out;
}

}  // namespace crossdock::formats::safetensors
