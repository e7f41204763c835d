// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_zip/legacy.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/endian.h"
#include "formats/pickle/reader.h"
#include "formats/torch_zip/tensor_walk.h"

namespace crossdock::formats::torch_zip {
namespace {

constexpr std::string_view kMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
constexpr std::int64_t kProtocol = 1001;

struct StorageSize {
  std::int64_t numel = 0;
  std::int64_t item = 0;   // bytes of an element
};

/// What the tensors say of each storage. A key whose tensors have no DType stays unknown.
std::map<std::string, StorageSize> SizesOf(const Value& value) {
  std::map<std::string, StorageSize> out;
  ForEachTensor(value, [&](const TensorValue& t) { out[t.storage] = {t.storage_numel, ElementSize(t.dtype)}; });
  return out;
}

Status CheckPreamble(const RangeReader& range, pickle::ByteSource& source) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Value magic, pickle::ReadPickle(source));
  CROSSDOCK_ASSIGN_OR_RETURN(const Value protocol, pickle::ReadPickle(source));
  if (protocol.as_int() == nullptr || *protocol.as_int() != kProtocol) {
    return MakeError(ErrorCode::kUnsupported, "an old torch file is of an unknown protocol").WithPath(range.file().path());
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const Value system, pickle::ReadPickle(source));
  if (!system.GetBool("little_endian").value_or(true)) {
    return MakeError(ErrorCode::kUnsupported, "an old torch file was written on a big-endian machine").WithPath(range.file().path());
  }
  return OkStatus();
}

}  // namespace

bool LooksLikeLegacy(const RangeReader& range) {
  const auto start = range.Read(0, std::min<std::int64_t>(static_cast<std::int64_t>(kMagic.size()), range.size()));
  return start && *start == kMagic;
}

Result<TorchFile> ReadLegacyFile(const RangeReader& range, const pickle::Limits& limits) {
  pickle::ByteSource source(range.file(), range.begin(), range.size());
  CROSSDOCK_RETURN_IF_ERROR(CheckPreamble(range, source));
  TorchFile out;
  CROSSDOCK_ASSIGN_OR_RETURN(out.value, pickle::ReadPickle(source, limits));
  CROSSDOCK_ASSIGN_OR_RETURN(const Value keys, pickle::ReadPickle(source, limits));
  if (keys.as_sequence() == nullptr) return range.Corrupt("an old torch file lists no storages", source.offset());
  const auto sizes = SizesOf(out.value);
  std::int64_t at = source.offset();
  for (const Value& key : *keys.as_sequence()) {
    if (key.as_string() == nullptr) return range.Corrupt("an old torch file has a storage without a name", at);
    const auto size = sizes.find(*key.as_string());
    if (size == sizes.end()) {
      return MakeError(ErrorCode::kUnsupported, "an old torch file has a storage of unknown type").WithPath(range.file().path());
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const std::string count, range.Read(at, 8));
    if (LoadLittle<std::int64_t>(count.data()) != size->second.numel) {
      return range.Corrupt("a storage of an old torch file is not as large as its tensors say", at)
          .WithExpected(std::to_string(size->second.numel) + " elements")
          .WithFound(std::to_string(LoadLittle<std::int64_t>(count.data())));
    }
    at += 8;
    const auto bytes = CheckedMul(size->second.numel, size->second.item);
    if (!bytes || *bytes > range.size() - at) return range.Corrupt("an old torch file ends within a storage", at);
    out.storages[*key.as_string()] = {range.begin() + at, *bytes};
    at += *bytes;
  }
  for (const auto& [key, size] : sizes) {
    if (!out.storages.contains(key)) return range.Corrupt("an old torch file lacks storage `" + Printable(key) + "`", at);
  }
  return out;
}

}  // namespace crossdock::formats::torch_zip
