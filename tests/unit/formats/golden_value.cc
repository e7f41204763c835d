// SPDX-License-Identifier: Apache-2.0
#include "unit/formats/golden_value.h"

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/sha256.h"
#include "formats/pickle/numbers.h"
#include "formats/pickle/torch_names.h"

namespace crossdock {
namespace {

std::string Hex(std::string_view bytes) {
  std::string out;
  for (char c : bytes) {
    std::array<char, 3> text{};
    std::snprintf(text.data(), text.size(), "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += text.data();
  }
  return out;
}

std::string FloatHex(double v) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(std::bit_cast<std::uint64_t>(v)));
  return text.data();
}

/// One comparison: `kind` is the single key of the description, `want` its value.
class Comparison {
 public:
  Comparison(const Value& actual, std::string kind, const Value& want, const TensorLoader& load, std::string where)
      : actual_(actual), kind_(std::move(kind)), want_(want), load_(load), where_(std::move(where)) {}

  std::string Run(const Value& description) {
    if (kind_ == "int") return Text(Integer());
    if (kind_ == "float") return Text(actual_.as_float() == nullptr ? "no float" : FloatHex(*actual_.as_float()));
    if (kind_ == "str") return Text(actual_.as_string() == nullptr ? "no string" : *actual_.as_string());
    if (kind_ == "bytes" && want_.as_int() != nullptr) {
      return Same(actual_.as_string() == nullptr ? "no string" : Sha256Hex(*actual_.as_string()),
                  description.GetString("str_sha256").value_or(""));
    }
    if (kind_ == "bytes") return Text(actual_.as_bytes() == nullptr ? "no bytes" : Hex(actual_.as_bytes()->data));
    if (kind_ == "bytearray") return Text(Argument("builtins", "bytearray").as_bytes() == nullptr ? "" : Hex(Argument("builtins", "bytearray").as_bytes()->data));
    if (kind_ == "list" || kind_ == "tuple") return Sequence();
    if (kind_ == "size") return actual_.is_tuple() && Value(actual_).Equals(Value::MakeTuple(*want_.as_sequence())) ? "" : Wrong();
    if (kind_ == "dict" || kind_ == "ordered_dict" || kind_ == "defaultdict") return Dict();
    if (kind_ == "set" || kind_ == "frozenset") return Set();
    if (kind_ == "tensor" || kind_ == "parameter") return Tensor();
    if (kind_ == "dtype") {
      return Text(actual_.as_dtype() == nullptr ? "no dtype" : "torch." + std::string(formats::pickle::TorchName(*actual_.as_dtype())));
    }
    if (kind_ == "namespace") return Namespace();
    return Object(description);
  }

 private:
  std::string Wrong() const { return where_ + ": is not the " + kind_ + " expected, but " + ToJson(actual_, 0).substr(0, 200); }
  std::string Same(const std::string& found, const std::string& expected) const {
    return found == expected ? "" : where_ + ": found " + found.substr(0, 200) + ", expected " + expected.substr(0, 200);
  }
  std::string Text(const std::string& found) const { return Same(found, *want_.as_string()); }

  std::string Integer() const {
    if (const auto* v = actual_.as_int()) return std::to_string(*v);
    const auto bytes = formats::pickle::DecimalToBytes(*want_.as_string());
    const auto* big = actual_.as_bigint();
    return big != nullptr && bytes && *bytes == big->little_endian ? *want_.as_string() : "no such integer";
  }

  /// The first argument of an Opaque of that class; null when it is something else.
  Value Argument(std::string_view module, std::string_view name) const {
    const Opaque* o = actual_.as_opaque();
    return o != nullptr && o->module == module && o->name == name && !o->args.empty() ? o->args[0] : Value();
  }

  std::string Sequence() const {
    const ValueList* found = actual_.as_sequence();
    const ValueList& expected = *want_.as_sequence();
    if (found == nullptr || actual_.is_tuple() != (kind_ == "tuple") || found->size() != expected.size()) return Wrong();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string diff = Difference((*found)[i], expected[i], load_, where_ + "[" + std::to_string(i) + "]");
      if (!diff.empty()) return diff;
    }
    return "";
  }

  std::string Dict() const {
    const ValueDict* found = nullptr;
    if (const auto* d = actual_.as_dict(); d != nullptr && d->ordered_class == (kind_ == "ordered_dict")) found = &d->items;
    // A dict subclass of somebody's is described as the dict it is, and kept as an object with entries.
    if (kind_ == "dict" && actual_.as_opaque() != nullptr) found = &actual_.as_opaque()->entries;
    if (kind_ == "defaultdict" && !Argument("collections", "defaultdict").is_null()) found = &actual_.as_opaque()->entries;
    const ValueList& expected = *want_.as_sequence();
    if (found == nullptr || found->size() != expected.size()) return Wrong();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const ValueList& pair = *expected[i].as_sequence();
      const std::string at = where_ + "{" + ToJson(pair[0], 0) + "}";
      std::string diff = Difference((*found)[i].first, pair[0], load_, at);
      if (diff.empty()) diff = Difference((*found)[i].second, pair[1], load_, at);
      if (!diff.empty()) return diff;
    }
    return "";
  }

  std::string Set() const {
    const Value items = Argument("builtins", kind_);
    const ValueList& expected = *want_.as_sequence();
    if (items.as_sequence() == nullptr || items.as_sequence()->size() != expected.size()) return Wrong();
    for (const Value& want : expected) {
      bool found = false;
      for (const Value& item : *items.as_sequence()) found = found || Difference(item, want, load_).empty();
      if (!found) return Wrong();
    }
    return "";
  }

  std::string Tensor() const {
    const std::string dtype = want_.GetString("dtype").value_or("");
    if (dtype == "C128") return actual_.as_opaque() != nullptr ? "" : Wrong();  // there is no such DType: stays inert
    const TensorValue* t = actual_.as_tensor();
    if (t == nullptr) return Wrong();
    ValueList shape(t->shape.begin(), t->shape.end());
    if (!Value::MakeList(shape).Equals(*want_.Find("shape"))) return where_ + ": wrong shape " + ToString(t->shape);
    if (DTypeName(t->dtype) != dtype) return where_ + ": wrong dtype " + std::string(DTypeName(t->dtype));
    const auto bytes = load_(*t);
    if (!bytes) return where_ + ": " + bytes.error().ToString();
    return Same(Sha256Hex(*bytes), want_.GetString("sha256").value_or(""));
  }

  std::string Namespace() const {
    const Opaque* o = actual_.as_opaque();
    if (o == nullptr || o->state == nullptr || o->state->as_dict() == nullptr) return Wrong();
    const ValueDict& expected = want_.as_dict()->items;
    if (o->state->as_dict()->items.size() != expected.size()) return Wrong();
    for (const auto& [key, value] : expected) {
      const Value* found = o->state->Find(*key.as_string());
      if (found == nullptr) return where_ + ": lacks " + *key.as_string();
      std::string diff = Difference(*found, value, load_, where_ + "." + *key.as_string());
      if (!diff.empty()) return diff;
    }
    return "";
  }

  /// Inert objects: that they are kept under their class's name, with their argument where the description tells it.
  std::string Object(const Value& description) const {
    const Opaque* o = actual_.as_opaque();
    if (o == nullptr) return Wrong();
    const std::string name = o->module + " " + o->name;
    if (kind_ == "object") return Text(name);
    if (kind_ == "enum") {
      const std::string diff = Text(name);
      return diff.empty() ? Difference(o->args.at(0), *description.Find("value"), load_, where_) : diff;
    }
    if (kind_ == "device") return name == "torch device" ? Difference(o->args.at(0), StringOf(want_), load_, where_) : Wrong();
    if (kind_ == "complex") return name == "builtins complex" ? Difference(Value::MakeList(o->args), ListOf(want_), load_, where_) : Wrong();
    if (kind_ == "path") return o->module.substr(0, 7) == "pathlib" ? "" : Wrong();
    if (kind_ == "partial" || kind_ == "args") return name == "functools partial" ? "" : Wrong();
    if (kind_ == "ndarray" || kind_ == "numpy" || kind_ == "hex") return o->module.substr(0, 5) == "numpy" ? "" : Wrong();
    return where_ + ": the test knows no " + kind_;
  }

  static Value StringOf(const Value& text) { return Value::MakeDict({{Value("str"), text}}); }
  static Value ListOf(const Value& list) { return Value::MakeDict({{Value("list"), list}}); }

  const Value& actual_;
  std::string kind_;
  const Value& want_;
  const TensorLoader& load_;
  std::string where_;
};

}  // namespace

std::string Difference(const Value& actual, const Value& expected, const TensorLoader& load, const std::string& where) {
  const Value::Dict* description = expected.as_dict();
  if (description == nullptr) return actual.Equals(expected) ? "" : where + ": expected " + ToJson(expected, 0);
  const auto& [key, want] = description->items.at(0);
  const std::string kind = description->items.size() == 2 && expected.Find("enum") != nullptr ? "enum" : *key.as_string();
  return Comparison(actual, kind, *expected.Find(kind), load, where).Run(expected);
}

std::string ReadGolden(const std::string& path) {
  std::ifstream in(std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/" + path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read golden file %s\n", path.c_str());
    std::abort();
  }
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Value ReadExpected(const std::string& folder) {
  auto parsed = ParseJson(ReadGolden(folder + "/expected.json"));
  if (!parsed) std::fprintf(stderr, "%s\n", parsed.error().ToString().c_str());
  return parsed.value();
}

}  // namespace crossdock
