// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/torch_file.h"

#include <algorithm>

#include "base/checked_math.h"
#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"
#include "formats/torch_zip/legacy.h"
#include "formats/torch_zip/tensor_walk.h"
#include "formats/torch_zip/zip_directory.h"
#include "formats/torch_zip/zip_writer.h"

namespace crossdock::formats::torch_zip {
namespace {

constexpr std::int64_t kSmallEntry = 64;
constexpr std::int64_t kSmallPickle = 4096;

Error Unsupported(const RangeReader& range, std::string what) {
  return MakeError(ErrorCode::kUnsupported, std::move(what)).WithPath(range.file().path());
}

Status CheckForm(const RangeReader& range, const ZipDirectory& zip) {
  if (zip.Has("constants.pkl")) return Unsupported(range, "a TorchScript archive holds a program, not a checkpoint");
  if (!zip.Has("byteorder")) return OkStatus();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string order, zip.Load(range, "byteorder", kSmallEntry));
  if (order == "little") return OkStatus();
  return Unsupported(range, "the tensors of a torch file are in `" + Printable(order) + "` byte order")
      .WithExpected("little")
      .WithHint("load it with torch on any machine and save it again");
}

/// The places of the storages that the tensors use.
Status PlaceStorages(const RangeReader& range, const ZipDirectory& zip, TorchFile& out) {
  Status status;
  ForEachTensor(out.value, [&](const TensorValue& t) {
    if (!status) return;
    auto at = out.storages.find(t.storage);
    if (at == out.storages.end()) {
      const auto found = zip.Locate(range, "data/" + t.storage);
      if (!found) {
        status = found.error();
        return;
      }
      at = out.storages.emplace(t.storage, ByteRange{range.begin() + found->offset, found->length}).first;
    }
    const auto wanted = CheckedMul(t.storage_numel, ElementSize(t.dtype));
    if (!wanted || *wanted > at->second.length) {
      status = range.Corrupt("a storage of a torch file is shorter than its tensors say", at->second.offset - range.begin())
                   .WithExpected(std::to_string(t.storage_numel) + " elements of " + std::string(DTypeName(t.dtype)))
                   .WithFound(std::to_string(at->second.length) + " bytes");
    }
  });
  return status;
}

Result<Value> ReadObject(const RangeReader& range, ByteRange place, const pickle::Limits& limits) {
  if (place.length > kSmallPickle) {
    pickle::ByteSource source(range.file(), range.begin() + place.offset, place.length);
    return pickle::ReadPickle(source, limits);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string bytes, range.Read(place.offset, place.length));  // mostly in the window
  Result<Value> value = pickle::ReadPickle(bytes, limits);
  if (value) return value;
  Error error = value.error();
  error.offset = range.begin() + place.offset + error.offset.value_or(0);
  return std::move(error).WithPath(range.file().path());
}

Result<TorchFile> ReadZipFile(const RangeReader& range, const pickle::Limits& limits) {
  CROSSDOCK_ASSIGN_OR_RETURN(const ZipDirectory zip, ZipDirectory::Read(range));
  CROSSDOCK_RETURN_IF_ERROR(CheckForm(range, zip));
  CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange place, zip.Locate(range, "data.pkl"));
  TorchFile out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.value, ReadObject(range, place, limits));
  CROSSDOCK_RETURN_IF_ERROR(PlaceStorages(range, zip, out));
  return out;
}

bool LooksLikeTar(const RangeReader& range) {
  const auto magic = range.size() >= 262 ? range.Read(257, 5) : Result<std::string>(std::string());
  return magic && *magic == "ustar";
}

}  // namespace

Result<TorchFile> ReadTorchFile(const io::ReadFile& file, ByteRange range, const pickle::Limits& limits) {
  CROSSDOCK_ASSIGN_OR_RETURN(const RangeReader reader, RangeReader::Open(file, range));
  if (LooksLikeLegacy(reader)) return ReadLegacyFile(reader, limits);
  if (LooksLikeTar(reader)) return Unsupported(reader, "a torch file is of the tar form of 2016");
  return ReadZipFile(reader, limits);
}

Result<TorchFile> ReadTorchFile(io::Storage& storage, const std::string& path, const pickle::Limits& limits) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage.OpenRead(path));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  return ReadTorchFile(*file, {0, info.size}, limits);
}

Result<TensorValue> LoadTensor(const io::ReadFile& file, const TorchFile& torch, const TensorValue& tensor,
                               std::int64_t limit) {
  TensorValue out = tensor;
  out.storage_offset = 0;
  out.strides = RowMajorStrides(tensor.shape);
  out.storage_numel = CheckedCount(tensor.shape);
  const std::int64_t item = ElementSize(tensor.dtype);
  if (out.storage_numel == 0) {
    out.bytes = std::make_shared<std::string>();
    return out;
  }
  std::int64_t span = 1;  // elements from the first of the view to its last; the reader checked that they exist
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) span += (tensor.shape[i] - 1) * tensor.strides[i];
  const auto size = CheckedMul(std::max(span, out.storage_numel), item);
  if (!size || *size > limit) {
    return MakeError(ErrorCode::kUnsupported, "a tensor is too large to be loaded as part of an object")
        .WithPath(file.path())
        .WithExpected("at most " + std::to_string(limit) + " bytes")
        .WithFound("shape " + ToString(tensor.shape));
  }
  const auto place = torch.storages.find(tensor.storage);
  if (place == torch.storages.end()) {
    return MakeError(ErrorCode::kCorrupt, "a tensor has no storage").WithPath(file.path());
  }
  std::string raw(static_cast<std::size_t>(span * item), '\0');
  CROSSDOCK_RETURN_IF_ERROR(
      file.ReadAt(place->second.offset + tensor.storage_offset * item, std::as_writable_bytes(std::span(raw))));
  TensorValue view = tensor;
  view.storage_offset = 0;
  view.bytes = std::make_shared<std::string>(std::move(raw));
  CROSSDOCK_ASSIGN_OR_RETURN(out.bytes, pickle::DenseBytes(view));
  return out;
}

Status LoadAllTensors(const io::ReadFile& file, TorchFile& torch, std::int64_t limit) {
  std::int64_t left = limit;
  CROSSDOCK_ASSIGN_OR_RETURN(Value loaded, MapTensors(torch.value, [&](const TensorValue& t) -> Result<TensorValue> {
    CROSSDOCK_ASSIGN_OR_RETURN(TensorValue out, LoadTensor(file, torch, t, left));
    left -= static_cast<std::int64_t>(out.bytes->size());
    return out;
  }));
  torch.value = std::move(loaded);
  return OkStatus();
}

Result<std::string> WriteTorchFile(const Value& value, std::string_view prefix) {
  CROSSDOCK_ASSIGN_OR_RETURN(const pickle::Pickled pickled, pickle::WritePickle(value));
  ZipWriter zip{std::string(prefix)};
  zip.Add("data.pkl", pickled.bytes);
  zip.Add("byteorder", "little");
  for (std::size_t i = 0; i < pickled.storages.size(); ++i) zip.Add("data/" + std::to_string(i), *pickled.storages[i]);
  zip.Add("version", "3\n");
  return zip.Finish();
}

}  // namespace crossdock::formats::torch_zip
