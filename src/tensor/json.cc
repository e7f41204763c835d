// SPDX-License-Identifier: Apache-2.0
/// JSON to Value by nlohmann's SAX interface: its DOM keeps the last of two equal keys in silence.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tensor/value.h"

namespace crossdock {
namespace {

constexpr std::size_t kMaxDepth = 256;

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Put(Value()); }
  bool boolean(bool v) override { return Put(Value(v)); }
  bool number_integer(number_integer_t v) override { return Put(Value(static_cast<std::int64_t>(v))); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<number_unsigned_t>(INT64_MAX)) return Put(Value(static_cast<double>(v)));
    return Put(Value(static_cast<std::int64_t>(v)));
  }
  bool number_float(number_float_t v, const string_t&) override { return Put(Value(v)); }
  bool string(string_t& v) override { return Put(Value(std::move(v))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Value::MakeDict()); }
  bool start_array(std::size_t) override { return Open(Value::MakeList()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& v) override {
    Frame& frame = stack_.back();
    if (!frame.keys.insert(v).second) {
      error_ = MakeError(ErrorCode::kCorrupt, fmt::format("duplicate key `{}`", Printable(v)));
      return false;
    }
    frame.key = std::move(v);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    error_ = MakeError(ErrorCode::kCorrupt, "invalid JSON")
                 .WithOffset(static_cast<std::int64_t>(position))
                 .WithFound(Printable(e.what()));
    return false;
  }

  Value root;
  std::optional<Error> error_;

 private:
  struct Frame {
    Value value;
    std::string key;
    std::set<std::string> keys;
  };
  bool Put(Value v) {
    if (stack_.empty()) {
      root = std::move(v);
      return true;
    }
    Frame& frame = stack_.back();
    if (Value::Dict* d = frame.value.as_dict()) {
      d->items.emplace_back(Value(std::move(frame.key)), std::move(v));
    } else {
      frame.value.mutable_sequence()->push_back(std::move(v));
    }
    return true;
  }
  bool Open(Value v) {
    if (stack_.size() >= kMaxDepth) {
      error_ = MakeError(ErrorCode::kUnsupported, "JSON is nested too deeply")
                   .WithExpected("at most " + std::to_string(kMaxDepth) + " levels");
      return false;
    }
    stack_.push_back({std::move(v), {}, {}});
    return true;
  }
  bool Close() {
    Value v = std::move(stack_.back().value);
    stack_.pop_back();
    return Put(std::move(v));
  }
  std::vector<Frame> stack_;
};

/// Python's json reads and writes NaN and Infinity, which JSON lacks: outside strings they are replaced by numbers
/// that no double is (1e999 parses to infinity), and NaN by a string that is turned back.
std::string WithoutPythonFloats(std::string_view text, bool* changed) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("NaN")) {
      out += "\"\\u0000NaN\"";
      i += 2;
      *changed = true;
    } else if (rest.starts_with("-Infinity")) {
      out += "\"\\u0000-Infinity\"";
      i += 8;
      *changed = true;
    } else if (rest.starts_with("Infinity")) {
      out += "\"\\u0000Infinity\"";
      i += 7;
      *changed = true;
    } else {
      out += c;
    }
  }
  return out;
}

Value RestorePythonFloats(const Value& v) {
  using namespace std::string_view_literals;
  if (const std::string* s = v.as_string()) {
    if (*s == "\0NaN"sv) return Value(std::nan(""));
    if (*s == "\0Infinity"sv) return Value(HUGE_VAL);
    if (*s == "\0-Infinity"sv) return Value(-HUGE_VAL);
    return v;
  }
  if (const ValueList* l = v.as_sequence()) {
    ValueList out;
    for (const Value& item : *l) out.push_back(RestorePythonFloats(item));
    return Value::MakeList(std::move(out));
  }
  if (const Value::Dict* d = v.as_dict()) {
    ValueDict out;
    for (const auto& [k, item] : d->items) out.emplace_back(k, RestorePythonFloats(item));
    return Value::MakeDict(std::move(out));
  }
  return v;
}

std::string Quoted(const std::string& s) {
  return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Number(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
  // As Python's repr: shortest digits that read back, ".0" for integral values, exponent from 1e16 on.
  std::string s = fmt::format("{}", v);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

void Write(const Value& v, int indent, int depth, std::string* out) {
  const auto line = [&](int d) {
    if (indent > 0) {
      *out += '\n';
      out->append(static_cast<std::size_t>(indent * d), ' ');
    }
  };
  const char* comma = indent > 0 ? "," : ", ";
  if (v.is_null()) {
    *out += "null";
  } else if (const auto* b = v.as_bool()) {
    *out += *b ? "true" : "false";
  } else if (const auto* i = v.as_int()) {
    *out += std::to_string(*i);
  } else if (const auto* f = v.as_float()) {
    *out += Number(*f);
  } else if (const auto* s = v.as_string()) {
    *out += Quoted(*s);
  } else if (const auto* l = v.as_sequence()) {
    if (l->empty()) {
      *out += "[]";
      return;
    }
    *out += '[';
    for (std::size_t k = 0; k < l->size(); ++k) {
      if (k != 0) *out += comma;
      line(depth + 1);
      Write((*l)[k], indent, depth + 1, out);
    }
    line(depth);
    *out += ']';
  } else if (const auto* d = v.as_dict()) {
    if (d->items.empty()) {
      *out += "{}";
      return;
    }
    *out += '{';
    for (std::size_t k = 0; k < d->items.size(); ++k) {
      if (k != 0) *out += comma;
      line(depth + 1);
      const Value& key = d->items[k].first;
      std::string text;
      if (const auto* ks = key.as_string()) {
        text = *ks;
      } else {
        Write(key, 0, 0, &text);
      }
      *out += Quoted(text) + ": ";
      Write(d->items[k].second, indent, depth + 1, out);
    }
    line(depth);
    *out += '}';
  } else if (const auto* dt = v.as_dtype()) {
    *out += Quoted(std::string(DTypeName(*dt)));
  } else if (const auto* by = v.as_bytes()) {
    *out += Quoted(fmt::format("<{} bytes>", by->data.size()));
  } else if (const auto* t = v.as_tensor()) {
    *out += Quoted(fmt::format("<tensor {} {}>", DTypeName(t->dtype), ToString(t->shape)));
  } else if (const auto* o = v.as_opaque()) {
    *out += Quoted(fmt::format("<{}.{}>", o->module, o->name));
  } else {
    *out += Quoted("<integer beyond 64 bits>");
  }
}

}  // namespace

Result<Value> ParseJson(std::string_view text, bool python_floats) {
  Builder builder;
  bool changed = false;
  std::string copy;
  if (python_floats && (text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos)) {
    copy = WithoutPythonFloats(text, &changed);
    text = copy;
  }
  const bool ok = nlohmann::json::sax_parse(text, &builder);
  if (!ok || builder.error_) {
    if (builder.error_) return std::move(*builder.error_);
    return MakeError(ErrorCode::kCorrupt, "invalid JSON");
  }
  if (changed) return RestorePythonFloats(builder.root);
  return std::move(builder.root);
}

std::string ToJson(const Value& value, int indent) {
  std::string out;
  Write(value, indent, 0, &out);
  return out;
}

}  // namespace crossdock
