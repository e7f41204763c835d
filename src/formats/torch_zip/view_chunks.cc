// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/view_chunks.h"

#include "base/checked_math.h"

namespace crossdock::formats::torch_zip {
namespace {

Error OutOfStorage(const TensorValue& view) {
  return MakeError(ErrorCode::kCorrupt, "a view leaves its storage")
      .WithExpected("a place within " + std::to_string(view.storage_numel) + " elements")
      .WithFound("offset " + std::to_string(view.storage_offset) + ", shape " + ToString(view.shape) + ", strides " +
                 ToString(view.strides));
}

/// The last element that the view touches must lie in the storage. REQUIRES: the view is not empty.
Status CheckWithin(const TensorValue& view, const ByteRange& storage) {
  std::int64_t last = view.storage_offset;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    if (view.strides[axis] < 0 || view.shape[axis] < 0) return OutOfStorage(view);
    const std::optional<std::int64_t> reach = CheckedMul(view.shape[axis] - 1, view.strides[axis]);
    const std::optional<std::int64_t> sum = reach ? CheckedAdd(last, *reach) : std::nullopt;
    if (!sum) return OutOfStorage(view);
    last = *sum;
  }
  const std::int64_t stored = storage.length / ElementSize(view.dtype);
  if (view.storage_offset < 0 || last >= stored) return OutOfStorage(view);
  return OkStatus();
}

}  // namespace

Result<std::vector<Chunk>> ChunksOfView(const TensorValue& view, const ByteRange& storage, std::int32_t file) {
  if (view.strides.size() != view.shape.size()) return OutOfStorage(view);
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t count, ElementCount(view.shape));
  const std::int64_t element = ElementSize(view.dtype);
  std::vector<Chunk> chunks;
  if (count == 0) {
    chunks.push_back({Box::Whole(view.shape), file, {storage.offset, 0}, ChunkEncoding::kRaw, 0});
    return chunks;
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckWithin(view, storage));
  // The inner axes that lie without a gap make a piece; the outer ones count pieces. An axis of one has any stride.
  std::size_t outer = view.shape.size();
  std::int64_t run = 1;
  while (outer > 0 && (view.shape[outer - 1] == 1 || view.strides[outer - 1] == run)) run *= view.shape[--outer];
  if (count / run > kMaxPieces) {
    return MakeError(ErrorCode::kUnsupported, "a view is scattered over too many pieces of its storage")
        .WithExpected("at most " + std::to_string(kMaxPieces))
        .WithFound(std::to_string(count / run))
        .WithHint("save the model with contiguous tensors, or as safetensors");
  }
  Box box = Box::Whole(view.shape);
  for (std::size_t axis = 0; axis < outer; ++axis) box.sizes[axis] = 1;
  for (std::int64_t piece = 0; piece < count / run; ++piece) {
    std::int64_t rest = piece;
    std::int64_t at = view.storage_offset;
    for (std::size_t axis = outer; axis-- > 0;) {
      box.offsets[axis] = rest % view.shape[axis];
      rest /= view.shape[axis];
      at += box.offsets[axis] * view.strides[axis];
    }
    chunks.push_back({box, file, {storage.offset + at * element, run * element}, ChunkEncoding::kRaw, 0});
  }
  return chunks;
}

}  // namespace crossdock::formats::torch_zip
