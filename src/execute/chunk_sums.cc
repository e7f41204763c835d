// SPDX-License-Identifier: Apache-2.0
#include "execute/chunk_sums.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace crossdock::execute {

void Extend(PieceSum& sum, SumKinds kinds, std::span<const std::byte> bytes) {
  if (kinds.crc32) sum.crc32 = Crc32(sum.crc32, bytes);
  if (!kinds.digest) return;
  const Digest next = DigestOf(bytes);
  sum.digest = sum.digest.length == 0 ? next : DigestJoin(sum.digest, next);
}

ChunkSums::ChunkSums(const Catalog& target, SumKinds kinds) : kinds_(kinds) {
  if (!kinds_.any()) return;
  for (const Entry& entry : target.entries) {
    first_.push_back(states_.size());
    for (const Chunk& chunk : entry.chunks) {  // of an encoded chunk the elements are summed up, and not what is stored
      const bool encoded = chunk.encoding == ChunkEncoding::kEncoded;
      states_.push_back({encoded ? CheckedCount(chunk.box.sizes) * ElementSize(entry.dtype) : chunk.bytes.length, {}});
    }
  }
  first_.push_back(states_.size());
  if (kinds_.digest) digests_.assign(states_.size(), DigestOf({}));
}

std::optional<std::uint32_t> ChunkSums::Add(std::int32_t entry, std::int32_t chunk, std::int64_t offset,
                                            std::int64_t length, const PieceSum& sum) {
  if (!kinds_.any()) return std::nullopt;
  const std::size_t index = first_[static_cast<std::size_t>(entry)] + static_cast<std::size_t>(chunk);
  std::vector<Piece> pieces;
  {
    const std::lock_guard lock(mutex_);
    State& state = states_[index];
    state.pieces.push_back({offset, length, sum});
    state.left -= length;
    CROSSDOCK_CHECK(state.left >= 0);  // the planner's outputs cover a chunk exactly once
    if (state.left > 0) return std::nullopt;
    pieces = std::exchange(state.pieces, {});
  }
  const PieceSum whole = Join(std::move(pieces));
  if (kinds_.digest) {
    const std::lock_guard lock(mutex_);
    digests_[index] = whole.digest;
  }
  return whole.crc32;
}

PieceSum ChunkSums::Join(std::vector<Piece> pieces) const {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  PieceSum whole = pieces.front().sum;
  std::int64_t end = pieces.front().length;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    const Piece& next = pieces[i];
    CROSSDOCK_CHECK(next.offset == end);
    end += next.length;
    if (kinds_.crc32) whole.crc32 = Crc32Combine(whole.crc32, next.sum.crc32, next.length);
    if (kinds_.digest) whole.digest = DigestJoin(whole.digest, next.sum.digest);
  }
  return whole;
}

std::vector<LoosePiece> ChunkSums::Loose() const {
  std::vector<LoosePiece> out;
  for (std::size_t entry = 0; entry + 1 < first_.size(); ++entry) {
    for (std::size_t i = first_[entry]; i < first_[entry + 1]; ++i) {
      for (const Piece& piece : states_[i].pieces) {
        out.push_back({static_cast<std::int32_t>(entry), static_cast<std::int32_t>(i - first_[entry]), piece.offset, piece.length, piece.sum.crc32});
      }
    }
  }
  return out;
}

std::vector<Digest> ChunkSums::EntryDigests() const {
  std::vector<Digest> digests;
  if (!kinds_.digest) return digests;
  for (std::size_t entry = 0; entry + 1 < first_.size(); ++entry) {
    Digest all = DigestOf({});
    for (std::size_t i = first_[entry]; i < first_[entry + 1]; ++i) {
      if (digests_[i].length == 0) continue;
      all = all.length == 0 ? digests_[i] : DigestJoin(all, digests_[i]);
    }
    digests.push_back(all);
  }
  return digests;
}

}  // namespace crossdock::execute
