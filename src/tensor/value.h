// SPDX-License-Identifier: Apache-2.0
/// \file  Value: a plain tree of data, what JSON, YAML and pickles hold once they are read.
/// Dialects make and read Values; formats turn them into bytes and back. Building one never runs anything:
/// an object of a foreign class is kept as an inert Opaque with the name of its class.
/// Invariant: dictionaries keep their order; keys are Values (a pickle has integer and tuple keys).
/// Threads: a Value is a plain value; copies are deep.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "crossdock/result.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace crossdock {

class Value;
using ValueList = std::vector<Value>;
using ValueDict = std::vector<std::pair<Value, Value>>;

/// A tensor met inside a pickle: a strided view of a storage. `storage` is the key of the storage in its
/// file (torch: "0", "1", ...); `bytes` is set when the data was loaded or is to be written.
struct TensorValue {
  DType dtype = DType::kF32;
  Shape shape;
  Dims strides;                     ///< elements
  std::int64_t storage_offset = 0;  ///< elements
  std::string storage;
  std::int64_t storage_numel = 0;   ///< elements
  std::shared_ptr<const std::string> bytes;  ///< the whole storage, or null
};

/// An object of some class, as data. How it was made decides how it is written again.
struct Opaque {
  enum class Form : std::uint8_t {
    kGlobal,   ///< the class or function itself: `torch.bfloat16` comes as a DType instead
    kReduce,   ///< callable(*args)
    kNewObj,   ///< cls.__new__(cls, *args)
    kNewObjEx, ///< cls.__new__(cls, *args, **kwargs): args is a tuple (args, kwargs)
    kPersId,   ///< a persistent id other than a storage
  };
  Form form = Form::kGlobal;
  std::string module;
  std::string name;
  ValueList args;
  std::shared_ptr<Value> state;  ///< argument of BUILD, or null
  ValueList items;               ///< appended elements (list subclasses, sets)
  ValueDict entries;             ///< set items (dict subclasses)
};

class Value {
 public:
  struct Null {
    bool operator==(const Null&) const = default;
  };
  struct Bytes {
    std::string data;
  };
  struct List {
    ValueList items;
  };
  struct Tuple {
    ValueList items;
  };
  struct Dict {
    ValueDict items;
    bool ordered_class = false;  ///< was (or shall be) a collections.OrderedDict
  };
  /// An integer beyond int64, as the little-endian two's-complement bytes of a pickle.
  struct BigInt {
    std::string little_endian;
  };

  Value() = default;
  Value(bool v) : v_(v) {}                                  // NOLINT(google-explicit-constructor)
  Value(std::int64_t v) : v_(v) {}                          // NOLINT(google-explicit-constructor)
  Value(int v) : v_(static_cast<std::int64_t>(v)) {}        // NOLINT(google-explicit-constructor)
  Value(double v) : v_(v) {}                                // NOLINT(google-explicit-constructor)
  Value(std::string v) : v_(std::move(v)) {}                // NOLINT(google-explicit-constructor)
  Value(std::string_view v) : v_(std::string(v)) {}         // NOLINT(google-explicit-constructor)
  Value(const char* v) : v_(std::string(v)) {}              // NOLINT(google-explicit-constructor)
  Value(DType v) : v_(v) {}                                 // NOLINT(google-explicit-constructor)
  Value(Bytes v) : v_(std::move(v)) {}                      // NOLINT(google-explicit-constructor)
  Value(BigInt v) : v_(std::move(v)) {}                     // NOLINT(google-explicit-constructor)
  Value(TensorValue v) : v_(std::move(v)) {}                // NOLINT(google-explicit-constructor)
  Value(Opaque v) : v_(std::make_shared<Opaque>(std::move(v))) {}  // NOLINT(google-explicit-constructor)
  static Value MakeList(ValueList items = {}) { return Value(List{std::move(items)}); }
  static Value MakeTuple(ValueList items = {}) { return Value(Tuple{std::move(items)}); }
  static Value MakeDict(ValueDict items = {}) { return Value(Dict{std::move(items), false}); }

  [[nodiscard]] bool is_null() const { return std::holds_alternative<Null>(v_); }
  [[nodiscard]] const bool* as_bool() const { return std::get_if<bool>(&v_); }
  [[nodiscard]] const std::int64_t* as_int() const { return std::get_if<std::int64_t>(&v_); }
  [[nodiscard]] const double* as_float() const { return std::get_if<double>(&v_); }
  [[nodiscard]] const std::string* as_string() const { return std::get_if<std::string>(&v_); }
  [[nodiscard]] const DType* as_dtype() const { return std::get_if<DType>(&v_); }
  [[nodiscard]] const Bytes* as_bytes() const { return std::get_if<Bytes>(&v_); }
  [[nodiscard]] const BigInt* as_bigint() const { return std::get_if<BigInt>(&v_); }
  [[nodiscard]] const TensorValue* as_tensor() const { return std::get_if<TensorValue>(&v_); }
  [[nodiscard]] const Opaque* as_opaque() const {
    const auto* p = std::get_if<std::shared_ptr<Opaque>>(&v_);
    return p != nullptr ? p->get() : nullptr;
  }
  /// Items of a list or a tuple, else null.
  [[nodiscard]] const ValueList* as_sequence() const;
  [[nodiscard]] bool is_tuple() const { return std::holds_alternative<Tuple>(v_); }
  [[nodiscard]] bool is_list() const { return std::holds_alternative<List>(v_); }
  [[nodiscard]] const Dict* as_dict() const { return std::get_if<Dict>(&v_); }
  [[nodiscard]] Dict* as_dict() { return std::get_if<Dict>(&v_); }
  [[nodiscard]] ValueList* mutable_sequence();

  /// The value under a string key of a dict, or of the state of an Opaque (a Namespace); null when absent.
  [[nodiscard]] const Value* Find(std::string_view key) const;
  /// Find along "a.b.c".
  [[nodiscard]] const Value* FindPath(std::string_view dotted) const;
  /// Sets a string key of a dict. REQUIRES: a dict.
  void Set(std::string_view key, Value value);
  /// Removes a string key of a dict; false when absent.
  bool Erase(std::string_view key);

  // Typed reads: nullopt when absent or of another type. An integral float counts as int, an int as float.
  [[nodiscard]] std::optional<std::int64_t> GetInt(std::string_view dotted) const;
  [[nodiscard]] std::optional<double> GetFloat(std::string_view dotted) const;
  [[nodiscard]] std::optional<bool> GetBool(std::string_view dotted) const;
  [[nodiscard]] std::optional<std::string> GetString(std::string_view dotted) const;

  /// Structural equality; a NaN equals itself; the order of dict keys counts not.
  [[nodiscard]] bool Equals(const Value& other) const;

 private:
  explicit Value(List v) : v_(std::move(v)) {}
  explicit Value(Tuple v) : v_(std::move(v)) {}
  explicit Value(Dict v) : v_(std::move(v)) {}
  friend struct ValueAccess;
  std::variant<Null, bool, std::int64_t, double, std::string, Bytes, BigInt, DType, List, Tuple, Dict,
               TensorValue, std::shared_ptr<Opaque>>
      v_;
};

/// JSON text to a Value. Rejects duplicate keys by name, bad UTF-8, trailing text, depth > 256; accepts NaN
/// and Infinity as Python's json does when `python_floats`. Errors: kCorrupt with line and column.
[[nodiscard]] Result<Value> ParseJson(std::string_view text, bool python_floats = true);

/// A Value as JSON: `indent` spaces (0 = compact with ", " and ": " as Python's json.dumps prints).
/// Tuples become lists; bytes, tensors and opaques become a short string that says what they are.
[[nodiscard]] std::string ToJson(const Value& value, int indent = 2);

}  // namespace crossdock
