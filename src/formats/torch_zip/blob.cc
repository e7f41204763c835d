// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/blob.h"

#include "base/check.h"
#include "base/checked_math.h"
#include "formats/pickle/torch_names.h"
#include "formats/pickle/writer.h"
#include "formats/torch_zip/torch_file.h"
#include "formats/torch_zip/zip_writer.h"

namespace crossdock::formats::torch_zip {
namespace {

std::string Describe(DType dtype, const Shape& shape) { return std::string(DTypeName(dtype)) + " " + ToString(shape); }

}  // namespace

Result<BlobLayout> LayOutBlob(DType dtype, const Shape& shape) {
  if (pickle::TorchName(dtype).empty()) {
    return MakeError(ErrorCode::kUnsupported, "torch has no element type " + std::string(DTypeName(dtype)))
        .WithHint("unpack the elements to U8 first");
  }
  BlobLayout out{.dtype = dtype, .shape = shape};
  CROSSDOCK_ASSIGN_OR_RETURN(out.data_size, ByteSize(dtype, shape));
  const BlobFrames frames = MakeBlobFrames(out, 0);
  out.header_size = static_cast<std::int64_t>(frames.header.size());
  out.trailer_size = static_cast<std::int64_t>(frames.trailer.size());
  if (!CheckedAdd(out.data_size, out.header_size + out.trailer_size)) {
    return MakeError(ErrorCode::kUnsupported, "a tensor is too large for any file");
  }
  return out;
}

BlobFrames MakeBlobFrames(const BlobLayout& layout, std::uint32_t crc) {
  pickle::Emitter pickle(false);
  pickle.Start();
  pickle::EmitTensor(pickle, layout.dtype, layout.shape, "0");
  pickle.Stop();
  ZipWriter zip("archive");
  zip.Add("data.pkl", pickle.bytes());
  zip.Add("byteorder", "little");
  zip.AddHole("data/0", layout.data_size, crc);
  BlobFrames out;
  out.header = zip.TakeHead();
  zip.Add("version", "3\n");
  out.trailer = zip.Finish();
  return out;
}

Result<ByteRange> LocateBlobData(const io::ReadFile& file, ByteRange blob, DType dtype, const Shape& shape) {
  // A bare tensor's pickle is tiny; anything that needs more is something else.
  const pickle::Limits limits{.max_graph_bytes = 1 << 20, .max_values = 1000, .max_text_bytes = 1 << 16, .max_depth = 20};
  CROSSDOCK_ASSIGN_OR_RETURN(const TorchFile torch, ReadTorchFile(file, blob, limits));
  const TensorValue* tensor = torch.value.as_tensor();
  const auto wrong = [&](std::string found) {
    return MakeError(ErrorCode::kCorrupt, "a stored chunk is not the tensor that the metadata describes")
        .WithPath(file.path())
        .WithOffset(blob.offset)
        .WithExpected("a contiguous tensor " + Describe(dtype, shape))
        .WithFound(std::move(found));
  };
  if (tensor == nullptr) return wrong("an object that is no tensor");
  if (tensor->dtype != dtype || tensor->shape != shape) return wrong(Describe(tensor->dtype, tensor->shape));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t size, ByteSize(dtype, shape));
  if (size == 0) return ByteRange{blob.offset, 0};
  bool dense = true;  // strides of axes of size 1 mean nothing
  const Dims strides = RowMajorStrides(shape);
  for (std::size_t i = 0; i < shape.size(); ++i) dense = dense && (shape[i] == 1 || tensor->strides[i] == strides[i]);
  if (!dense) return wrong("strides " + ToString(tensor->strides));
  const ByteRange place = torch.storages.at(tensor->storage);
  const std::int64_t start = tensor->storage_offset * ElementSize(dtype);  // within the storage, as the reader checked
  return ByteRange{place.offset + start, size};
}

}  // namespace crossdock::formats::torch_zip
