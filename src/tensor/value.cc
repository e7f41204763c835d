// SPDX-License-Identifier: Apache-2.0
#include "tensor/value.h"

#include <algorithm>
#include <cmath>

namespace crossdock {
namespace {

bool SameSequence(const ValueList& a, const ValueList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Value& x, const Value& y) { return x.Equals(y); });
}

bool SameDict(const ValueDict& a, const ValueDict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.begin(), a.end(), [&](const auto& item) {
    return std::any_of(b.begin(), b.end(), [&](const auto& other) {
      return item.first.Equals(other.first) && item.second.Equals(other.second);
    });
  });
}

bool SameTensor(const TensorValue& a, const TensorValue& b) {
  const bool same_bytes = a.bytes == b.bytes || (a.bytes && b.bytes && *a.bytes == *b.bytes);
  return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides &&
         a.storage_offset == b.storage_offset && a.storage_numel == b.storage_numel && same_bytes;
}

bool SameOpaque(const Opaque& a, const Opaque& b) {
  if (a.form != b.form || a.module != b.module || a.name != b.name) return false;
  if ((a.state == nullptr) != (b.state == nullptr)) return false;
  if (a.state && !a.state->Equals(*b.state)) return false;
  return SameSequence(a.args, b.args) && SameSequence(a.items, b.items) && SameDict(a.entries, b.entries);
}

}  // namespace

const ValueList* Value::as_sequence() const {
  if (const auto* l = std::get_if<List>(&v_)) return &l->items;
  if (const auto* t = std::get_if<Tuple>(&v_)) return &t->items;
  return nullptr;
}

ValueList* Value::mutable_sequence() {
  if (auto* l = std::get_if<List>(&v_)) return &l->items;
  if (auto* t = std::get_if<Tuple>(&v_)) return &t->items;
  return nullptr;
}

const Value* Value::Find(std::string_view key) const {
  if (const Opaque* o = as_opaque()) return o->state ? o->state->Find(key) : nullptr;
  const Dict* d = as_dict();
  if (d == nullptr) return nullptr;
  for (const auto& [k, v] : d->items) {
    const std::string* s = k.as_string();
    if (s != nullptr && *s == key) return &v;
  }
  return nullptr;
}

const Value* Value::FindPath(std::string_view dotted) const {
  const Value* at = this;
  while (at != nullptr) {
    const std::size_t dot = dotted.find('.');
    at = at->Find(dotted.substr(0, dot));
    if (dot == std::string_view::npos) return at;
    dotted.remove_prefix(dot + 1);
  }
  return nullptr;
}

void Value::Set(std::string_view key, Value value) {
  Dict* d = as_dict();
  CROSSDOCK_CHECK(d != nullptr);
  for (auto& [k, v] : d->items) {
    const std::string* s = k.as_string();
    if (s != nullptr && *s == key) {
      v = std::move(value);
      return;
    }
  }
  d->items.emplace_back(Value(key), std::move(value));
}

bool Value::Erase(std::string_view key) {
  Dict* d = as_dict();
  if (d == nullptr) return false;
  return std::erase_if(d->items, [&](const auto& item) {
           const std::string* s = item.first.as_string();
           return s != nullptr && *s == key;
         }) != 0;
}

std::optional<std::int64_t> Value::GetInt(std::string_view dotted) const {
  const Value* v = FindPath(dotted);
  if (v == nullptr) return std::nullopt;
  if (const auto* i = v->as_int()) return *i;
  if (const auto* f = v->as_float()) {
    if (std::trunc(*f) == *f && std::fabs(*f) < 9e15) return static_cast<std::int64_t>(*f);
  }
  return std::nullopt;
}

std::optional<double> Value::GetFloat(std::string_view dotted) const {
  const Value* v = FindPath(dotted);
  if (v == nullptr) return std::nullopt;
  if (const auto* f = v->as_float()) return *f;
  if (const auto* i = v->as_int()) return static_cast<double>(*i);
  return std::nullopt;
}

std::optional<bool> Value::GetBool(std::string_view dotted) const {
  const Value* v = FindPath(dotted);
  if (v == nullptr || v->as_bool() == nullptr) return std::nullopt;
  return *v->as_bool();
}

std::optional<std::string> Value::GetString(std::string_view dotted) const {
  const Value* v = FindPath(dotted);
  if (v == nullptr || v->as_string() == nullptr) return std::nullopt;
  return *v->as_string();
}

bool Value::Equals(const Value& other) const {
  if (v_.index() != other.v_.index()) return false;
  if (is_null()) return true;
  if (const auto* b = as_bool()) return *b == *other.as_bool();
  if (const auto* i = as_int()) return *i == *other.as_int();
  if (const auto* f = as_float()) {
    return *f == *other.as_float() || (std::isnan(*f) && std::isnan(*other.as_float()));
  }
  if (const auto* s = as_string()) return *s == *other.as_string();
  if (const auto* b = as_bytes()) return b->data == other.as_bytes()->data;
  if (const auto* n = as_bigint()) return n->little_endian == other.as_bigint()->little_endian;
  if (const auto* d = as_dtype()) return *d == *other.as_dtype();
  if (const auto* s = as_sequence()) return SameSequence(*s, *other.as_sequence());
  if (const auto* d = as_dict()) return SameDict(d->items, other.as_dict()->items);
  if (const auto* t = as_tensor()) return SameTensor(*t, *other.as_tensor());
  return SameOpaque(*as_opaque(), *other.as_opaque());
}

}  // namespace crossdock
