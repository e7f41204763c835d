// SPDX-License-Identifier: Apache-2.0
/// \file  The header of one safetensors file: read, check, print.
/// On disk (FORMAT.md, 1; upstream safetensors 0.8.0, safetensors/src/tensor.rs):
///   u64 little-endian N (<= 100,000,000) | N bytes of JSON | data
///   JSON: {"__metadata__": {string: string}, NAME: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
/// Invariant: in a Header the ranges are sorted, do not overlap, and cover the data without a gap; names are unique.
/// Errors: kCorrupt names file and tensor, in the reference's words, "invalid offset for tensor"; kUnsupported for more
/// axes than we carry. Threads: a Header is a plain value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "crossdock/result.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::safetensors {

inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // upstream's MAX_HEADER_SIZE

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct HeaderTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  ByteRange bytes;                     ///< relative to the data
};

struct Header {
  std::vector<HeaderTensor> tensors;   ///< by offset
  Metadata metadata;
  std::int64_t data_start = 0;         ///< 8 + N
  std::vector<std::string> notices;    ///< what upstream accepts although its format text does not
};

/// Checks `json` against `data_bytes` bytes of data. `path` is for messages.
[[nodiscard]] Result<Header> ParseHeader(std::string json, std::int64_t data_bytes, const std::string& path);

/// Reads and checks the header of an open file of `size` bytes.
[[nodiscard]] Result<Header> ReadHeader(const io::ReadFile& file, std::int64_t size);

/// Length, JSON and padding exactly as upstream's writer prints them. REQUIRES: names and metadata are valid UTF-8.
[[nodiscard]] std::string PrintHeader(std::span<const HeaderTensor> tensors, const Metadata& metadata);

}  // namespace crossdock::formats::safetensors
