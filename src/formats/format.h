// SPDX-License-Identifier: Apache-2.0
/// \file  The two interfaces of a checkpoint format: CheckpointReader and CheckpointWriter.
/// A format knows bytes and nothing of models: names are opaque to it.
/// Threads: readers are immutable after Open, Locate and LoadObject may be called from any thread; a writer's Seal
/// and Encode are const and may be called from any thread after LayOut.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "crossdock/result.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats {

/// The elements of a chunk that is stored encoded, row-major, from the first to the last. Threads: one.
class ElementStream {
 public:
  virtual ~ElementStream() = default;
  /// Fills `out` with the next bytes. kCorrupt names what is wrong with the stored bytes; asking beyond the chunk's end is
  /// a mistake of the caller.
  [[nodiscard]] virtual Status Read(std::span<std::byte> out) = 0;
};

class CheckpointReader {
 public:
  virtual ~CheckpointReader() = default;
  [[nodiscard]] virtual const Catalog& catalog() const = 0;
  /// Where the raw, contiguous, row-major elements of a chunk lie in its file. For kRaw this is chunk.bytes; for
  /// kTorchBlob the blob's zip directory is read (and remembered), dtype, shape and size are checked against the
  /// catalog: kCorrupt names file and tensor. For kEncoded they lie in what OpenEncoded gives, from 0 to the chunk's size.
  [[nodiscard]] virtual Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const = 0;
  /// Decodes a chunk whose encoding is kEncoded, in memory that does not grow with the chunk. `file` is the chunk's, opened
  /// by the caller, and outlives the stream. Only readers whose catalogs have such chunks are asked.
  [[nodiscard]] virtual Result<std::unique_ptr<ElementStream>> OpenEncoded(std::int32_t entry, std::int32_t chunk,
                                                                           const io::ReadFile& file) const;
  /// Reads one of catalog().object_refs. kUnsupported for formats without objects.
  [[nodiscard]] virtual Result<Value> LoadObject(const ObjectRef& ref) const = 0;
};

inline Result<std::unique_ptr<ElementStream>> CheckpointReader::OpenEncoded(std::int32_t /*entry*/, std::int32_t /*chunk*/,
                                                                            const io::ReadFile& file) const {
  return MakeError(ErrorCode::kUnsupported, "chunks of this format are not encoded").WithPath(file.path());
}

/// Bytes of an output file that are no tensor data (headers, zip directories).
struct Frame {
  std::int32_t file = -1;
  std::int64_t offset = 0;
  std::string bytes;
};

struct Placement {
  /// The target with files (path, size) and, for each chunk, `file` and `bytes` = the range of its raw elements.
  /// For a writer every chunk is kRaw: it addresses the elements themselves. Or kEncoded: its size is not known yet, `bytes` is
  /// where it would lie if it were as large as it can be, and the file's size a bound likewise. Such a chunk is one output of one task,
  /// handed whole to Encode, and what comes back is appended to its file in the order of the plan. All chunks of a file are alike.
  Catalog catalog;
  /// Known before any data: written first (safetensors headers). What Seal returns may lie within them.
  std::vector<Frame> frames;
  /// The executor joins the CRC-32 of each chunk's raw bytes and hands it to Seal. Each chunk is then written in
  /// contiguous pieces whose order in the chunk is known.
  bool wants_crc32 = false;
};

class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;
  /// Decides files, sizes and offsets for everything. Deterministic: equal catalogs give equal placements.
  /// `target` has unplaced chunks (file -1; `shard` says which chunks belong together). Called once.
  [[nodiscard]] virtual Result<Placement> LayOut(Catalog target) = 0;
  /// The frames around a chunk, once its data is written and its CRC-32 is known. Empty for formats without.
  /// Here and below `placed` is the catalog of the Placement that LayOut gave: a writer keeps no second one.
  [[nodiscard]] virtual Result<std::vector<Frame>> Seal(const Catalog& placed, std::int32_t entry, std::int32_t chunk,
                                                        std::uint32_t crc32) const = 0;
  /// The stored form of a kEncoded chunk: `elements` are all of it, row-major. Equal elements give equal bytes, never more than
  /// the chunk's `bytes` says. Only writers whose placement has such chunks are asked.
  [[nodiscard]] virtual Result<std::string> Encode(const Catalog& placed, std::int32_t entry, std::int32_t chunk,
                                                   std::span<const std::byte> elements) const;
  /// After the last task, with the real places of encoded chunks: writes the format's own metadata files (`.metadata`, `model.safetensors.index.json`)
  /// into `dir` through `storage`, each synced. Streams: memory does not grow with the number of chunks.
  [[nodiscard]] virtual Status WriteMetadata(const Catalog& placed, io::Storage& storage, const std::string& dir) = 0;
  /// The sizes of the files that WriteMetadata will write (for the plan's totals); path -> upper bound of bytes.
  [[nodiscard]] virtual std::vector<FileRef> MetadataFiles() const = 0;
};

inline Result<std::string> CheckpointWriter::Encode(const Catalog& placed, std::int32_t /*entry*/, std::int32_t /*chunk*/,
                                                    std::span<const std::byte> /*elements*/) const {
  return MakeError(ErrorCode::kUnsupported, "chunks of this format are not encoded").WithPath(placed.root);
}

}  // namespace crossdock::formats
