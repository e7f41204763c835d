// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/metadata_fields.h"

#include <cmath>
#include <vector>

namespace crossdock::formats::zarr {

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

bool IsZero(const Value& value) {
  if (const bool* flag = value.as_bool()) return !*flag;
  if (const std::int64_t* number = value.as_int()) return *number == 0;
  const double* real = value.as_float();
  return real != nullptr && *real == 0.0 && !std::signbit(*real);
}

Status CheckShapes(const ArrayMetadata& array) {
  if (array.shape.size() != array.chunk_shape.size()) {
    return Malformed("`shape` and the shape of chunks differ in their number of axes")
        .WithFound(ToString(array.shape) + " and " + ToString(array.chunk_shape));
  }
  for (const Shape* shape : {&array.shape, &array.chunk_shape}) {
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::int64_t bytes, ByteSize(array.dtype, *shape));
  }
  return OkStatus();
}

}  // namespace crossdock::formats::zarr
