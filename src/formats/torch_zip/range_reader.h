// SPDX-License-Identifier: Apache-2.0
/// \file  RangeReader: a range of a file (one blob of a .distcp, or a whole .pt) seen as a file of its own.
/// Its first and last few KiB are read once and kept: a blob's pickle and its zip directory lie there, so that finding
/// a tensor costs two reads, or one when the blob is small.
/// Errors: kCorrupt when a read would leave the range. Threads: immutable after Open. Ownership: the file must outlive it.
#pragma once

#include <cstdint>
#include <string>

#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::torch_zip {

class RangeReader {
 public:
  /// kCorrupt when the range does not lie in the file.
  [[nodiscard]] static Result<RangeReader> Open(const io::ReadFile& file, ByteRange range);

  [[nodiscard]] std::int64_t size() const { return range_.length; }
  [[nodiscard]] std::int64_t begin() const { return range_.offset; }  ///< in the file
  [[nodiscard]] const io::ReadFile& file() const { return *file_; }
  /// `length` bytes from `offset` of the range.
  [[nodiscard]] Result<std::string> Read(std::int64_t offset, std::int64_t length) const;
  /// An error about this file at `offset` of the range.
  [[nodiscard]] Error Corrupt(std::string what, std::int64_t offset) const;

 private:
  RangeReader(const io::ReadFile& file, ByteRange range) : file_(&file), range_(range) {}

  const io::ReadFile* file_;
  ByteRange range_;
  std::string head_;
  std::string tail_;
};

}  // namespace crossdock::formats::torch_zip
