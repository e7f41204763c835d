// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/array_metadata.h"

#include <optional>

#include "formats/zarr/dtype_names.h"
#include "formats/zarr/metadata_fields.h"
#include "tensor/value.h"

namespace crossdock::formats::zarr {
namespace {

/// "zlib" of {"id": "zlib", "level": 1}; the JSON itself of anything else.
std::string CodecName(const Value& codec) { return codec.GetString("id").value_or(ToJson(codec, 0)); }

Result<Codecs> CodecsOf(const Value& json) {
  const Value* filters = json.Find("filters");
  if (filters != nullptr && !filters->is_null()) {
    const ValueList* list = filters->as_sequence();
    if (list == nullptr) return Malformed("`filters` is no list");
    if (!list->empty()) return NotCarried("its chunks are filtered", "filters null", "filter " + CodecName(list->front()));
  }
  const Value* compressor = json.Find("compressor");
  if (compressor == nullptr) return Malformed("no `compressor`");
  if (compressor->is_null()) return Codecs{};
  const std::string name = CodecName(*compressor);
  if (name == "zstd") return Codecs{Codec::kZstd};
  if (name == "blosc") return Codecs{Codec::kBlosc};
  if (name == "gzip" || name == "zlib") return Codecs{Codec::kGzip};
  return NotCarried("its chunks are compressed", "compressor null, zstd, blosc, gzip or zlib", "compressor " + name);
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

Status ReadDataType(const Value& json, ArrayMetadata& out) {
  const Value* value = json.Find("dtype");
  if (value == nullptr) return Malformed("no `dtype`");
  const std::string name = value->as_string() != nullptr ? *value->as_string() : ToJson(*value, 0);
  out.nibbles = name == "int4";
  const std::optional<DType> dtype = out.nibbles ? DType::kI8 : DTypeFromZarr(name);
  if (name.starts_with('>')) return NotCarried("it is big-endian", "a little-endian type", "dtype " + name);
  if (!dtype) return NotCarried("its type is unknown", "a numeric type, as \"<f4\" or \"bfloat16\"", "dtype " + name);
  out.dtype = *dtype;
  return OkStatus();
}

}  // namespace

Result<ArrayMetadata> ParseZarray(std::string_view text) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Value json, ParseJson(text));
  if (json.as_dict() == nullptr) return Malformed("it is no JSON object");
  CROSSDOCK_RETURN_IF_ERROR(CheckForm(json));
  ArrayMetadata out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.codecs, CodecsOf(json));
  CROSSDOCK_RETURN_IF_ERROR(ReadDataType(json, out));
  CROSSDOCK_ASSIGN_OR_RETURN(out.shape, ReadDims(json, "shape", 0));
  CROSSDOCK_ASSIGN_OR_RETURN(out.chunk_shape, ReadDims(json, "chunks", 1));
  CROSSDOCK_RETURN_IF_ERROR(CheckShapes(out));
  const std::string separator = json.GetString("dimension_separator").value_or(".");
  if (separator != "." && separator != "/") return Malformed("`dimension_separator` is neither \".\" nor \"/\"").WithFound(Printable(separator));
  out.separator = separator[0];
  const Value* fill = json.Find("fill_value");
  out.zero_fill = fill == nullptr || fill->is_null() || IsZero(*fill);
  return out;
}

std::string ChunkKey(const ArrayMetadata& array, const Dims& position) {
  if (position.empty()) return array.prefixed ? "c" : "0";
  std::string key = array.prefixed ? "c" : "";
  for (std::size_t axis = 0; axis < position.size(); ++axis) {
    if (!key.empty()) key += array.separator;
    key += std::to_string(position[axis]);
  }
  return key;
}

}  // namespace crossdock::formats::zarr
