// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/zarr_json.h"

#include <algorithm>
#include <array>
#include <span>

#include "formats/zarr/dtype_names.h"
#include "formats/zarr/metadata_fields.h"

namespace crossdock::formats::zarr {
namespace {

constexpr std::array<std::string_view, 10> kMembers = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid",
                                                       "chunk_key_encoding", "codecs", "fill_value", "attributes", "dimension_names"};

/// The name of an extension object {"name": ..., "configuration": {...}}, or of a bare string.
Result<std::string> NameOf(const Value& value, std::string_view what) {
  if (const std::string* name = value.as_string()) return *name;
  const std::optional<std::string> name = value.GetString("name");
  if (!name) return Malformed("`" + std::string(what) + "` has no name").WithFound(ToJson(value, 0));
  return *name;
}

Status CheckMembers(const Value& json) {
  for (const auto& [key, value] : json.as_dict()->items) {
    const std::string& name = *key.as_string();
    if (std::ranges::find(kMembers, name) != kMembers.end()) continue;
    if (value.GetBool("must_understand") == false) continue;
    if (name == "storage_transformers" && value.as_sequence() != nullptr && value.as_sequence()->empty()) continue;
    return NotCarried("its metadata has a member that must be understood", "no extension", name);
  }
  return OkStatus();
}

Result<Dims> ReadGrid(const Value& json) {
  const Value* grid = json.Find("chunk_grid");
  if (grid == nullptr) return Malformed("no `chunk_grid`");
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string name, NameOf(*grid, "chunk_grid"));
  if (name != "regular") return NotCarried("its chunks are no regular grid", "chunk_grid regular", "chunk_grid " + name);
  const Value* configuration = grid->Find("configuration");
  if (configuration == nullptr) return Malformed("`chunk_grid` has no `configuration`");
  return ReadDims(*configuration, "chunk_shape", 1);
}

Status ReadKeys(const Value& json, ArrayMetadata& out) {
  const Value* encoding = json.Find("chunk_key_encoding");
  if (encoding == nullptr) return Malformed("no `chunk_key_encoding`");
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string name, NameOf(*encoding, "chunk_key_encoding"));
  out.prefixed = name == "default";
  if (!out.prefixed && name != "v2") return NotCarried("its chunks are named in another way", "chunk_key_encoding default or v2", name);
  const std::string separator = encoding->GetString("configuration.separator").value_or(out.prefixed ? "/" : ".");
  if (separator != "." && separator != "/") return Malformed("`separator` is neither \".\" nor \"/\"").WithFound(Printable(separator));
  out.separator = separator[0];
  return OkStatus();
}

Status ReadType(const Value& json, ArrayMetadata& out) {
  const Value* value = json.Find("data_type");
  if (value == nullptr) return Malformed("no `data_type`");
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string name, NameOf(*value, "data_type"));
  out.nibbles = std::string_view(name) == "int4";  // as a view: gcc 12 sees an uninitialized string otherwise
  const std::optional<DType> dtype = out.nibbles ? DType::kI8 : DTypeFromZarr3(name);
  if (!dtype) return NotCarried("its type is unknown", "a numeric type, as \"float32\" or \"bfloat16\"", "data_type " + name);
  out.dtype = *dtype;
  return OkStatus();
}

/// A transpose that moves nothing: "C" of early drafts, or [0, 1, ...].
bool MovesNothing(const Value& codec) {
  const Value* order = codec.FindPath("configuration.order");
  if (order == nullptr) return false;
  if (order->as_string() != nullptr) return *order->as_string() == "C";
  const ValueList* axes = order->as_sequence();
  if (axes == nullptr) return false;
  for (std::size_t i = 0; i < axes->size(); ++i) {
    if ((*axes)[i].as_int() == nullptr || *(*axes)[i].as_int() != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

Status CheckLittle(const Value& codec, std::int64_t element_bytes) {
  const std::optional<std::string> endian = codec.GetString("configuration.endian");
  if (endian == "little" || (!endian && element_bytes == 1)) return OkStatus();
  if (endian == "big" && element_bytes == 1) return OkStatus();
  if (!endian) return Malformed("the codec `bytes` says no `endian`");
  return NotCarried("it is big-endian", "endian little", "endian " + *endian);
}

/// `transpose` that moves nothing, `bytes`, then the codecs of bytes.
Result<Codecs> ReadByteCodecs(std::span<const Value> list, std::int64_t element_bytes) {
  Codecs out;
  bool bytes = false;
  for (const Value& codec : list) {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string name, NameOf(codec, "codecs"));
    if (!bytes && name == "transpose") {
      if (!MovesNothing(codec)) return NotCarried("its axes are permuted", "no transpose", ToJson(codec, 0));
    } else if (name == "bytes" && !bytes) {
      CROSSDOCK_RETURN_IF_ERROR(CheckLittle(codec, element_bytes));
      bytes = true;
    } else if (bytes && name == "zstd") {
      out.push_back(Codec::kZstd);
    } else if (bytes && name == "gzip") {
      out.push_back(Codec::kGzip);
    } else if (bytes && name == "blosc") {
      out.push_back(Codec::kBlosc);
    } else if (bytes && name == "crc32c") {
      out.push_back(Codec::kCrc32c);
    } else {
      return NotCarried("a codec is unknown, or stands where it is not read", "bytes, then zstd, gzip, blosc or crc32c", "codec " + name);
    }
  }
  if (!bytes) return Malformed("no codec `bytes`");
  const bool blosc = std::ranges::find(out, Codec::kBlosc) != out.end();
  if (blosc && out.size() > 1) return NotCarried("blosc is joined with another codec", "blosc alone", std::to_string(out.size()) + " codecs of bytes");
  constexpr std::size_t kMostCodecs = 4;  // each holds a window while it decodes
  if (out.size() > kMostCodecs) return NotCarried("its chunks are encoded many times over", "at most 4 codecs of bytes", std::to_string(out.size()));
  return out;
}

Result<const ValueList*> ListIn(const Value& json, std::string_view name) {
  const Value* value = json.Find(name);
  const ValueList* list = value != nullptr ? value->as_sequence() : nullptr;
  if (list == nullptr || list->empty()) return Malformed("`" + std::string(name) + "` is no list of codecs");
  return list;
}

Result<Sharding> ReadSharding(const Value& codec, const ArrayMetadata& array) {
  const Value* configuration = codec.Find("configuration");
  if (configuration == nullptr) return Malformed("`sharding_indexed` has no `configuration`");
  Sharding out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.inner, ReadDims(*configuration, "chunk_shape", 1));
  const auto divides = [](std::int64_t inner, std::int64_t outer) { return outer % inner == 0; };
  if (!std::ranges::equal(out.inner, array.chunk_shape, divides)) {
    return Malformed("the inner chunks of a shard do not divide it")
        .WithFound(ToString(out.inner) + " in " + ToString(array.chunk_shape));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const ValueList* codecs, ListIn(*configuration, "codecs"));
  CROSSDOCK_ASSIGN_OR_RETURN(out.codecs, ReadByteCodecs(*codecs, ElementSize(array.dtype)));
  CROSSDOCK_ASSIGN_OR_RETURN(const ValueList* index, ListIn(*configuration, "index_codecs"));
  CROSSDOCK_ASSIGN_OR_RETURN(const Codecs index_codecs, ReadByteCodecs(*index, 8));
  out.index_checksum = index_codecs == Codecs{Codec::kCrc32c};
  if (!out.index_checksum && !index_codecs.empty()) {
    return NotCarried("the index of a shard is compressed", "index_codecs bytes, crc32c", ToJson(*configuration->Find("index_codecs"), 0));
  }
  const std::string location = configuration->GetString("index_location").value_or("end");
  if (location != "end" && location != "start") return Malformed("`index_location` is neither \"start\" nor \"end\"").WithFound(Printable(location));
  out.index_at_end = location == "end";
  return out;
}

Status ReadCodecs(const Value& json, ArrayMetadata& out) {
  CROSSDOCK_ASSIGN_OR_RETURN(const ValueList* list, ListIn(json, "codecs"));
  std::span<const Value> codecs = *list;
  while (codecs.size() > 1 && codecs.front().GetString("name") == "transpose" && MovesNothing(codecs.front())) codecs = codecs.subspan(1);
  if (codecs.front().GetString("name") != "sharding_indexed") {
    CROSSDOCK_ASSIGN_OR_RETURN(out.codecs, ReadByteCodecs(codecs, ElementSize(out.dtype)));
    return OkStatus();
  }
  if (codecs.size() > 1) return NotCarried("shards are encoded as a whole", "nothing after sharding_indexed", ToJson(codecs[1], 0));
  CROSSDOCK_ASSIGN_OR_RETURN(out.sharding, ReadSharding(codecs.front(), out));
  return OkStatus();
}

}  // namespace

Result<ArrayMetadata> ParseZarrJson(std::string_view text) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Value json, ParseJson(text));
  if (json.as_dict() == nullptr) return Malformed("it is no JSON object");
  const std::optional<std::int64_t> version = json.GetInt("zarr_format");
  if (!version) return Malformed("no `zarr_format`");
  if (*version != 3) return NotCarried("it is of another version of zarr", "zarr_format 3", std::to_string(*version));
  const std::optional<std::string> node = json.GetString("node_type");
  if (node != "array") return Malformed("`node_type` is not \"array\"").WithFound(Printable(node.value_or("no `node_type`")));
  CROSSDOCK_RETURN_IF_ERROR(CheckMembers(json));
  ArrayMetadata out;
  CROSSDOCK_RETURN_IF_ERROR(ReadType(json, out));
  CROSSDOCK_ASSIGN_OR_RETURN(out.shape, ReadDims(json, "shape", 0));
  CROSSDOCK_ASSIGN_OR_RETURN(out.chunk_shape, ReadGrid(json));
  CROSSDOCK_RETURN_IF_ERROR(CheckShapes(out));
  CROSSDOCK_RETURN_IF_ERROR(ReadKeys(json, out));
  CROSSDOCK_RETURN_IF_ERROR(ReadCodecs(json, out));
  const Value* fill = json.Find("fill_value");
  if (fill == nullptr) return Malformed("no `fill_value`");
  out.zero_fill = IsZero(*fill);
  return out;
}

}  // namespace crossdock::formats::zarr
