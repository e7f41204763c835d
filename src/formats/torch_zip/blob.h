// SPDX-License-Identifier: Apache-2.0
/// \file  Blob: a torch zip that holds one bare tensor, as a .distcp is made of them.
/// On disk: FORMAT.md, 2: header (data.pkl, byteorder, the local header of data/0), data, trailer (version, directory).
/// Invariants: sizes depend on dtype and shape only, not on the CRC; the data starts at a multiple of 64.
/// Errors: kUnsupported (a dtype torch lacks), kCorrupt (a blob that holds something else). Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "formats/torch_zip/range_reader.h"
#include "tensor/dtype.h"

namespace crossdock::formats::torch_zip {

struct BlobLayout {
  DType dtype = DType::kF32;
  Shape shape;
  std::int64_t header_size = 0;
  std::int64_t data_size = 0;
  std::int64_t trailer_size = 0;
  [[nodiscard]] std::int64_t total() const { return header_size + data_size + trailer_size; }
};

struct BlobFrames {
  std::string header;
  std::string trailer;
};

[[nodiscard]] Result<BlobLayout> LayOutBlob(DType dtype, const Shape& shape);
/// The bytes around the data. `crc` is the CRC-32 of the data.
[[nodiscard]] BlobFrames MakeBlobFrames(const BlobLayout& layout, std::uint32_t crc);

/// Where the elements of the one tensor lie in the file. Checks that the blob is one contiguous tensor of that dtype
/// and shape with a storage of its size: kCorrupt with expected and found otherwise.
[[nodiscard]] Result<ByteRange> LocateBlobData(const io::ReadFile& file, ByteRange blob, DType dtype, const Shape& shape);

}  // namespace crossdock::formats::torch_zip
