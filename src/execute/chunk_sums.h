// SPDX-License-Identifier: Apache-2.0
/// \file  ChunkSums: joins the checksums of the pieces of each target chunk, in whatever order they are done.
/// Invariant: the result depends on the bytes alone. Threads: Add may be called from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "tensor/catalog.h"

namespace crossdock::execute {

/// The checksums of a contiguous piece of a chunk.
struct PieceSum {
  std::uint32_t crc32 = 0;
  Digest digest;  ///< only when digests are asked for
  bool operator==(const PieceSum&) const = default;
};

/// A piece of a chunk of which other processes write the rest.
struct LoosePiece {
  std::int32_t entry = 0, chunk = 0;
  std::int64_t offset = 0, length = 0;  ///< bytes within the chunk
  std::uint32_t crc32 = 0;
};

/// Which checksums a run computes.
struct SumKinds {
  bool crc32 = false;
  bool digest = false;
  [[nodiscard]] bool any() const { return crc32 || digest; }
  bool operator==(const SumKinds&) const = default;
};

/// Of bytes that follow those of `sum`.
void Extend(PieceSum& sum, SumKinds kinds, std::span<const std::byte> bytes);

class ChunkSums {
 public:
  ChunkSums(const Catalog& target, SumKinds kinds);
  [[nodiscard]] SumKinds kinds() const { return kinds_; }
  /// The piece at `offset` of a chunk is written. The chunk's CRC-32 when it was the last one.
  [[nodiscard]] std::optional<std::uint32_t> Add(std::int32_t entry, std::int32_t chunk, std::int64_t offset,
                                                 std::int64_t length, const PieceSum& sum);
  /// What was added of chunks that are not complete.
  [[nodiscard]] std::vector<LoosePiece> Loose() const;
  /// A digest a target entry, over its chunks in order. REQUIRES: every piece was added.
  [[nodiscard]] std::vector<Digest> EntryDigests() const;

 private:
  struct Piece {
    std::int64_t offset = 0;
    std::int64_t length = 0;
    PieceSum sum;
  };
  struct State {
    std::int64_t left = 0;  ///< bytes not yet added
    std::vector<Piece> pieces;
  };
  [[nodiscard]] PieceSum Join(std::vector<Piece> pieces) const;

  SumKinds kinds_;
  std::mutex mutex_;
  std::vector<std::size_t> first_;  ///< of the chunks of an entry in states_; one more at the end
  std::vector<State> states_;
  std::vector<Digest> digests_;  ///< of complete chunks, in the order of states_; empty when none are asked for
};

}  // namespace crossdock::execute
