// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/writer.h"

#include <cstring>
#include <map>
#include <unordered_map>

#include "base/checked_math.h"
#include "formats/pickle/numbers.h"
#include "formats/pickle/torch_names.h"

namespace crossdock::formats::pickle {
namespace {

using Bytes = std::shared_ptr<const std::string>;

/// Row-major bytes of a view. REQUIRES: checked to lie within `storage`.
void CopyView(const TensorValue& t, std::int64_t item, std::size_t axis, std::int64_t at, const std::string& storage,
              std::string& out) {
  if (axis == t.shape.size()) {
    out.append(storage, static_cast<std::size_t>(at * item), static_cast<std::size_t>(item));
    return;
  }
  for (std::int64_t i = 0; i < t.shape[axis]; ++i) CopyView(t, item, axis + 1, at + i * t.strides[axis], storage, out);
}

/// The last element a view reaches plus one; nothing when that overflows or the view is malformed.
std::optional<std::int64_t> Reach(const TensorValue& t) {
  if (t.shape.size() != t.strides.size() || t.storage_offset < 0) return std::nullopt;
  std::optional<std::int64_t> last = t.storage_offset;
  for (std::size_t i = 0; i < t.shape.size(); ++i) {
    if (t.strides[i] < 0) return std::nullopt;
    const auto step = CheckedMul(t.shape[i] - 1, t.strides[i]);
    last = step && last ? CheckedAdd(*last, *step) : std::nullopt;
  }
  return last ? CheckedAdd(*last, 1) : std::nullopt;
}

class Writer {
 public:
  explicit Writer(Outside outside) : may_be_outside_(outside == Outside::kAllowed) {}

  Result<Pickled> Write(const Value& value) {
    CountTexts(value);
    out_.Start();
    CROSSDOCK_RETURN_IF_ERROR(Emit(value));
    out_.Stop();
    return Pickled{out_.Flush(), std::move(storages_), std::move(outside_)};
  }

 private:
  void CountTexts(const ValueDict& items) {
    for (const auto& [key, value] : items) {
      CountTexts(key);
      CountTexts(value);
    }
  }

  void CountTexts(const Value& value) {
    if (const std::string* text = value.as_string()) ++texts_[*text];
    if (const ValueList* items = value.as_sequence()) {
      for (const Value& item : *items) CountTexts(item);
    }
    if (const Value::Dict* dict = value.as_dict()) CountTexts(dict->items);
    if (const Opaque* opaque = value.as_opaque()) {
      for (const Value& item : opaque->args) CountTexts(item);
      for (const Value& item : opaque->items) CountTexts(item);
      CountTexts(opaque->entries);
      if (opaque->state) CountTexts(*opaque->state);
    }
  }

  Status Emit(const Value& value) {
    if (value.is_null()) out_.Null();
    if (const bool* v = value.as_bool()) out_.Bool(*v);
    if (const std::int64_t* v = value.as_int()) out_.Int(*v);
    if (const double* v = value.as_float()) out_.Float(*v);
    if (const std::string* v = value.as_string()) EmitText(*v);
    if (const Value::Bytes* v = value.as_bytes()) EmitBytes(v->data);
    if (const Value::BigInt* v = value.as_bigint()) return EmitBigInt(v->little_endian);
    if (const DType* v = value.as_dtype()) return EmitDType(*v);
    if (const ValueList* v = value.as_sequence()) return value.is_tuple() ? EmitTuple(*v) : EmitList(*v);
    if (const Value::Dict* v = value.as_dict()) return EmitDict(*v);
    if (const TensorValue* v = value.as_tensor()) return EmitTensorValue(*v);
    if (const Opaque* v = value.as_opaque()) return EmitOpaque(*v);
    return OkStatus();
  }

  void EmitText(const std::string& text) {
    if (texts_[text] > 1) return out_.MemoText(text);
    out_.Text(text);
  }

  void EmitBytes(const std::string& bytes) {
    out_.Global("_codecs", "encode");
    out_.Mark();
    out_.Text(BytesToLatin1(bytes));
    out_.MemoText("latin1");
    out_.TupleFromMark();
    out_.Reduce();
  }

  Status EmitBigInt(const std::string& bytes) {
    if (bytes.size() > 0xFF) return MakeError(ErrorCode::kUnsupported, "an integer is too large for protocol 2");
    out_.Long(bytes);
    return OkStatus();
  }

  Status EmitDType(DType dtype) {
    if (TorchName(dtype).empty()) {
      return MakeError(ErrorCode::kUnsupported, "torch has no element type " + std::string(DTypeName(dtype)));
    }
    out_.Global("torch", TorchName(dtype));
    return OkStatus();
  }

  Status EmitAll(const ValueList& items) {
    for (const Value& item : items) CROSSDOCK_RETURN_IF_ERROR(Emit(item));
    return OkStatus();
  }

  Status EmitTuple(const ValueList& items) {
    if (items.empty()) {
      out_.EmptyTuple();
      return OkStatus();
    }
    out_.Mark();
    CROSSDOCK_RETURN_IF_ERROR(EmitAll(items));
    out_.TupleFromMark();
    return OkStatus();
  }

  Status EmitItems(const ValueList& items) {
    if (items.empty()) return OkStatus();
    out_.Mark();
    CROSSDOCK_RETURN_IF_ERROR(EmitAll(items));
    out_.Appends();
    return OkStatus();
  }

  Status EmitEntries(const ValueDict& items) {
    if (items.empty()) return OkStatus();
    out_.Mark();
    for (const auto& [key, value] : items) {
      CROSSDOCK_RETURN_IF_ERROR(Emit(key));
      CROSSDOCK_RETURN_IF_ERROR(Emit(value));
    }
    out_.SetItems();
    return OkStatus();
  }

  Status EmitList(const ValueList& items) {
    out_.EmptyList();
    return EmitItems(items);
  }

  Status EmitDict(const Value::Dict& dict) {
    if (dict.ordered_class) {
      out_.Global("collections", "OrderedDict");
      out_.EmptyTuple();
      out_.Reduce();
    } else {
      out_.EmptyDict();
    }
    return EmitEntries(dict.items);
  }

  Status EmitTensorValue(const TensorValue& t) {
    if (TorchName(t.dtype).empty()) return EmitDType(t.dtype);
    if (may_be_outside_ && t.bytes == nullptr) {
      EmitTensor(out_, t.dtype, t.shape, std::to_string(storages_.size()));
      storages_.emplace_back();
      outside_.push_back(t);
      return OkStatus();
    }
    CROSSDOCK_ASSIGN_OR_RETURN(Bytes bytes, DenseBytes(t));
    const auto [at, fresh] = keys_.emplace(bytes.get(), storages_.size());
    // An empty or a compacted tensor is alone; only whole tensors meet again under one pointer.
    if (fresh) storages_.push_back(bytes);
    EmitTensor(out_, t.dtype, t.shape, std::to_string(at->second));
    return OkStatus();
  }

  Status EmitOpaque(const Opaque& o) {
    if (o.form == Opaque::Form::kPersId) {  // names a storage of another file
      return MakeError(ErrorCode::kUnsupported, "a tensor of a type that cannot be carried cannot be written");
    }
    out_.Global(o.module, o.name);
    if (o.form == Opaque::Form::kGlobal) return OkStatus();
    if (o.form == Opaque::Form::kNewObjEx) {
      CROSSDOCK_RETURN_IF_ERROR(EmitAll(o.args));
      out_.Byte('\x92');
    } else {
      CROSSDOCK_RETURN_IF_ERROR(EmitTuple(o.args));
      o.form == Opaque::Form::kReduce ? out_.Reduce() : out_.NewObj();
    }
    CROSSDOCK_RETURN_IF_ERROR(EmitItems(o.items));
    CROSSDOCK_RETURN_IF_ERROR(EmitEntries(o.entries));
    if (o.state != nullptr) {
      CROSSDOCK_RETURN_IF_ERROR(Emit(*o.state));
      out_.Build();
    }
    return OkStatus();
  }

  bool may_be_outside_;
  Emitter out_;
  std::map<std::string, int> texts_;                       // how often each text occurs
  std::unordered_map<const std::string*, std::size_t> keys_;  // looked up only; storages_ keeps the pointers alive
  std::vector<Bytes> storages_;
  std::vector<TensorValue> outside_;
};

}  // namespace

Result<std::shared_ptr<const std::string>> DenseBytes(const TensorValue& t) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t count, ElementCount(t.shape));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t size, ByteSize(t.dtype, t.shape));
  if (count == 0) return Bytes(std::make_shared<std::string>());
  if (t.bytes == nullptr) {
    return MakeError(ErrorCode::kUnsupported, "a tensor cannot be written, for its data was not loaded")
        .WithFound("shape " + ToString(t.shape));
  }
  const std::int64_t item = ElementSize(t.dtype);
  const auto reach = Reach(t);
  const auto reach_bytes = reach ? CheckedMul(*reach, item) : std::nullopt;
  if (!reach_bytes || *reach_bytes > static_cast<std::int64_t>(t.bytes->size())) {
    return MakeError(ErrorCode::kCorrupt, "a tensor reaches past the end of its storage").WithFound("shape " + ToString(t.shape));
  }
  const bool whole = t.storage_offset == 0 && t.strides == RowMajorStrides(t.shape) &&
                     static_cast<std::int64_t>(t.bytes->size()) == size;
  if (whole) return t.bytes;
  std::string out;
  out.reserve(static_cast<std::size_t>(size));
  CopyView(t, item, 0, t.storage_offset, *t.bytes, out);
  return Bytes(std::make_shared<std::string>(std::move(out)));
}

void EmitTensor(Emitter& out, DType dtype, const Shape& shape, std::string_view key) {
  const std::string_view storage = StorageClassName(dtype);
  const bool typed = !storage.empty();
  const std::int64_t count = CheckedCount(shape);
  out.Global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  out.Mark();
  out.Mark();
  out.MemoText("storage");
  typed ? out.Global("torch", storage) : out.Global("torch.storage", "UntypedStorage");
  out.MemoText(key);
  out.MemoText("cpu");
  out.Int(typed ? count : count * ElementSize(dtype));
  out.TupleFromMark();
  out.PersistentId();
  out.Int(0);
  out.Tuple(shape);
  out.Tuple(RowMajorStrides(shape));
  out.Bool(false);
  out.Global("collections", "OrderedDict");
  out.EmptyTuple();
  out.Reduce();
  if (!typed) out.Global("torch", TorchName(dtype));
  out.TupleFromMark();
  out.Reduce();
}

Result<Pickled> WritePickle(const Value& value, Outside outside) { return Writer(outside).Write(value); }

}  // namespace crossdock::formats::pickle
