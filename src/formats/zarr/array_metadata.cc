// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/array_metadata.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tensor/value.h"

namespace crossdock::formats::zarr {
namespace {

struct TypeRow {
  std::string_view name;
  DType dtype;
};
/// NumPy's type strings, and the plain names that TensorStore and Megatron-Core give what NumPy has no letter for.
constexpr std::array kTypes = {
    TypeRow{"<f8", DType::kF64}, TypeRow{"<f4", DType::kF32}, TypeRow{"<f2", DType::kF16}, TypeRow{"bfloat16", DType::kBF16},
    TypeRow{"<i8", DType::kI64}, TypeRow{"<i4", DType::kI32}, TypeRow{"<i2", DType::kI16}, TypeRow{"|i1", DType::kI8},
    TypeRow{"<u8", DType::kU64}, TypeRow{"<u4", DType::kU32}, TypeRow{"<u2", DType::kU16}, TypeRow{"|u1", DType::kU8},
    TypeRow{"|b1", DType::kBool}, TypeRow{"<c8", DType::kC64},
    TypeRow{"float8_e4m3fn", DType::kF8E4M3}, TypeRow{"float8_e5m2", DType::kF8E5M2},
    TypeRow{"float8_e4m3fnuz", DType::kF8E4M3FNUZ}, TypeRow{"float8_e5m2fnuz", DType::kF8E5M2FNUZ},
};

Error Malformed(std::string what) { return MakeError(ErrorCode::kCorrupt, "the metadata of a zarr array is malformed: " + std::move(what)); }

Error NotCarried(std::string what, std::string expected, std::string found) {
  return MakeError(ErrorCode::kUnsupported, "a zarr array is stored in a way that is not read: " + std::move(what))
      .WithExpected(std::move(expected))
      .WithFound(Printable(found));
}

Result<Dims> ReadDims(const Value& json, std::string_view name, std::int64_t least) {
  const Value* value = json.Find(name);
  const ValueList* items = value != nullptr ? value->as_sequence() : nullptr;
  if (items == nullptr) return Malformed("`" + std::string(name) + "` is no list");
  std::vector<std::int64_t> sizes;
  for (const Value& item : *items) {
    const std::int64_t* size = item.as_int();
    if (size == nullptr || *size < least) return Malformed("`" + std::string(name) + "` holds no size").WithFound(ToJson(item, 0));
    sizes.push_back(*size);
  }
  return Dims::FromSpan(sizes);
}

/// "zlib" of {"id": "zlib", "level": 1}; the JSON itself of anything else.
std::string CodecName(const Value& codec) { return codec.GetString("id").value_or(ToJson(codec, 0)); }

Status CheckCodecs(const Value& json) {
  const Value* compressor = json.Find("compressor");
  if (compressor == nullptr) return Malformed("no `compressor`");
  if (!compressor->is_null()) return NotCarried("its chunks are compressed", "compressor null", "compressor " + CodecName(*compressor));
  const Value* filters = json.Find("filters");
  if (filters == nullptr || filters->is_null()) return OkStatus();
  const ValueList* list = filters->as_sequence();
  if (list == nullptr) return Malformed("`filters` is no list");
  if (list->empty()) return OkStatus();
  return NotCarried("its chunks are filtered", "filters null", "filter " + CodecName(list->front()));
}

Status CheckForm(const Value& json) {
  const std::optional<std::int64_t> version = json.GetInt("zarr_format");
  if (!version) return Malformed("no `zarr_format`");
  if (*version != 2) return NotCarried("it is of another version of zarr", "zarr_format 2", std::to_string(*version));
  const std::optional<std::string> order = json.GetString("order");
  if (!order) return Malformed("no `order`");
  if (*order != "C") return NotCarried("its chunks are not row-major", "order C", "order " + *order);
  return OkStatus();
}

Result<DType> ReadType(const Value& json) {
  const Value* value = json.Find("dtype");
  if (value == nullptr) return Malformed("no `dtype`");
  const std::string name = value->as_string() != nullptr ? *value->as_string() : ToJson(*value, 0);
  if (const std::optional<DType> dtype = DTypeFromZarr(name)) return *dtype;
  if (name.starts_with('>')) return NotCarried("it is big-endian", "a little-endian type", "dtype " + name);
  return NotCarried("its type is unknown", "a numeric type, as \"<f4\" or \"bfloat16\"", "dtype " + name);
}

}  // namespace

std::optional<DType> DTypeFromZarr(std::string_view name) {
  const auto at = std::ranges::find(kTypes, name, &TypeRow::name);
  return at == kTypes.end() ? std::nullopt : std::optional<DType>(at->dtype);
}

Result<ArrayMetadata> ParseZarray(std::string_view text) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Value json, ParseJson(text));
  if (json.as_dict() == nullptr) return Malformed("it is no JSON object");
  CROSSDOCK_RETURN_IF_ERROR(CheckForm(json));
  CROSSDOCK_RETURN_IF_ERROR(CheckCodecs(json));
  ArrayMetadata out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.dtype, ReadType(json));
  CROSSDOCK_ASSIGN_OR_RETURN(out.shape, ReadDims(json, "shape", 0));
  CROSSDOCK_ASSIGN_OR_RETURN(out.chunk_shape, ReadDims(json, "chunks", 1));
  if (out.shape.size() != out.chunk_shape.size()) {
    return Malformed("`shape` and `chunks` differ in their number of axes").WithFound(ToString(out.shape) + " and " + ToString(out.chunk_shape));
  }
  for (const Shape* shape : {&out.shape, &out.chunk_shape}) {
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::int64_t bytes, ByteSize(out.dtype, *shape));
  }
  const std::string separator = json.GetString("dimension_separator").value_or(".");
  if (separator != "." && separator != "/") return Malformed("`dimension_separator` is neither \".\" nor \"/\"").WithFound(Printable(separator));
  out.separator = separator[0];
  return out;
}

std::string ChunkKey(const ArrayMetadata& array, const Dims& position) {
  if (position.empty()) return "0";
  std::string key;
  for (std::size_t axis = 0; axis < position.size(); ++axis) {
    if (axis != 0) key += array.separator;
    key += std::to_string(position[axis]);
  }
  return key;
}

}  // namespace crossdock::formats::zarr
