// SPDX-License-Identifier: Apache-2.0
/// \file  Torch files (.pt, .pth, .bin, and the items of a .distcp): the object as a Value, tensors by place.
/// On disk: FORMAT.md. The zip form (torch >= 1.6) and the older sequence of pickles; little-endian only.
/// Invariant: every tensor in `value` has its storage in `storages`, which lies within the file and is as large as the
/// pickle says. No tensor data is read until LoadTensor asks for it, and then only what its view spans.
/// Errors: kCorrupt, kUnsafe (from the pickle), kUnsupported (big-endian, compressed, TorchScript, tar).
/// Threads: pure functions; a TorchFile is a plain value.
#pragma once

#include <map>
#include <string>

#include "formats/pickle/limits.h"
#include "formats/torch_zip/range_reader.h"
#include "tensor/value.h"

namespace crossdock::formats::torch_zip {

struct TorchFile {
  Value value;
  std::map<std::string, ByteRange> storages;   ///< key -> bytes in the file (not in the range)
};

/// Reads the torch file that `range` of `file` is.
[[nodiscard]] Result<TorchFile> ReadTorchFile(const io::ReadFile& file, ByteRange range,
                                              const pickle::Limits& limits = {});
/// The whole of a file.
[[nodiscard]] Result<TorchFile> ReadTorchFile(io::Storage& storage, const std::string& path,
                                              const pickle::Limits& limits = {});

/// `tensor` with its data: contiguous, with a storage of exactly its size. kUnsupported when it is larger than `limit`.
[[nodiscard]] Result<TensorValue> LoadTensor(const io::ReadFile& file, const TorchFile& torch, const TensorValue& tensor,
                                             std::int64_t limit);
/// Gives every tensor of `torch.value` its data (see LoadTensor); `limit` bounds their sum.
[[nodiscard]] Status LoadAllTensors(const io::ReadFile& file, TorchFile& torch, std::int64_t limit);

/// The value as a whole zip file; `prefix` is the folder of its entries: the file's stem, or "archive".
[[nodiscard]] Result<std::string> WriteTorchFile(const Value& value, std::string_view prefix);

}  // namespace crossdock::formats::torch_zip
