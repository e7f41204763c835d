// SPDX-License-Identifier: Apache-2.0
/// \file  The `.metadata` pickle of PyTorch DCP, read into flat columns while it streams by.
/// On disk (FORMAT.md, 1; upstream torch 2.15, torch/distributed/checkpoint/metadata.py): Metadata with
/// state_dict_metadata (key -> TensorStorageMetadata | BytesStorageMetadata), storage_data (MetadataIndex ->
/// _StorageInfo) and, by Megatron-Core, mcore_data (<= 0.15) and all_local_plans, which is skipped.
/// A checkpoint may have a million chunks: neither the pickle nor a tree of it is ever held in memory.
/// Invariants of a parsed Metadata: sizes and offsets are not negative, ranges do not overflow, file names are plain names.
/// Errors: kCorrupt, kUnsafe (a name that leaves the directory, an unsafe pickle), kUnsupported (transformed blobs, more
/// than kMaxRank axes). Threads: a parsed Metadata is a plain value.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/pickle/byte_source.h"
#include "tensor/catalog.h"

namespace crossdock::formats::dcp {

struct StoredTensor {
  std::string name;
  std::optional<DType> dtype;      ///< nothing when torch's type has no DType
  std::string torch_dtype;         ///< as the file names it
  Shape shape;
  std::vector<std::uint64_t> boxes;  ///< of its chunks: see Metadata::BoxAt; places are in Metadata::places
};

/// Where a chunk or a bytes item lies.
struct Place {
  std::uint32_t name = 0;          ///< index into Metadata::names
  std::uint32_t file = 0;          ///< index into Metadata::files
  ByteRange bytes;
  std::optional<std::uint64_t> offsets;  ///< of a chunk: index of the first coordinate in Metadata::coordinates
  std::uint8_t rank = 0;
};

struct Metadata {
  std::vector<StoredTensor> tensors;       ///< in the order of the file
  std::vector<std::string> objects;        ///< keys of bytes items, in the order of the file
  std::vector<std::string> names;          ///< keys that places refer to
  std::vector<std::string> files;          ///< relative paths
  std::deque<Place> places;                ///< deques grow without a copy: two copies of a million would be the peak
  std::deque<std::int64_t> coordinates;    ///< of chunks: rank, offsets, sizes; of places: offsets
  std::vector<std::string> flattened;      ///< keys with a reformulated shape in mcore_data

  [[nodiscard]] Dims OffsetsOf(const Place& place) const;
  [[nodiscard]] Box BoxAt(std::uint64_t number) const;  ///< REQUIRES: one of a tensor's `boxes`
};

[[nodiscard]] Result<Metadata> ParseMetadata(pickle::ByteSource& source);

}  // namespace crossdock::formats::dcp
