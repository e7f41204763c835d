// SPDX-License-Identifier: Apache-2.0
#include "execute/decoded_chunks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace crossdock::execute {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20U;  // decoded and written at a time
constexpr std::size_t kLookAhead = 256;                  // chunks

}  // namespace

DecodedChunks::DecodedChunks(const formats::CheckpointReader& reader, BufferPool& pool, std::int64_t kept,
                             io::Storage& storage, std::string dir, std::function<bool()> stopped)
    : reader_(reader), pool_(pool), kept_(kept), storage_(storage), dir_(std::move(dir)), stopped_(std::move(stopped)) {
  const std::vector<Entry>& entries = reader.catalog().entries;
  first_.assign(entries.size(), -1);
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const std::vector<Chunk>& chunks = entries[e].chunks;
    if (std::ranges::none_of(chunks, [](const Chunk& c) { return c.encoding == ChunkEncoding::kEncoded; })) continue;
    first_[e] = static_cast<std::int32_t>(chunks_.size());
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      chunks_.push_back(std::make_unique<Decoded>());
      chunks_.back()->entry = static_cast<std::int32_t>(e);
      chunks_.back()->chunk = static_cast<std::int32_t>(c);
    }
  }
  order_.resize(chunks_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [&](std::int32_t number) {
    const Decoded& d = *chunks_[static_cast<std::size_t>(number)];
    const Chunk& c = entries[static_cast<std::size_t>(d.entry)].chunks[static_cast<std::size_t>(d.chunk)];
    return std::pair(c.file, c.bytes.offset);
  });
  position_.resize(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) position_[static_cast<std::size_t>(order_[i])] = static_cast<std::int32_t>(i);
}

DecodedChunks::~DecodedChunks() {
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (std::exchange(chunks_[i]->scratch, nullptr) != nullptr) (void)storage_.RemoveFile(ScratchPath(static_cast<std::int32_t>(i)));
  }
}

std::int32_t DecodedChunks::NumberOf(std::int32_t entry, std::int32_t chunk) const {
  const std::int32_t first = first_[static_cast<std::size_t>(entry)];
  if (first < 0) return -1;
  const Entry& e = reader_.catalog().entries[static_cast<std::size_t>(entry)];
  return e.chunks[static_cast<std::size_t>(chunk)].encoding == ChunkEncoding::kEncoded ? first + chunk : -1;
}

void DecodedChunks::Expect(std::int32_t number) { ++chunks_[static_cast<std::size_t>(number)]->expected; }

Status DecodedChunks::Release(std::int32_t number) {
  Decoded& decoded = *chunks_[static_cast<std::size_t>(number)];
  if (--decoded.expected > 0) return OkStatus();
  const std::lock_guard lock(decoded.mutex);
  Forget(decoded);
  if (std::exchange(decoded.scratch, nullptr) == nullptr) return OkStatus();
  return storage_.RemoveFile(ScratchPath(number));
}

void DecodedChunks::Forget(Decoded& decoded) {
  decoded.memory = {};
  held_ -= std::exchange(decoded.held, 0);
}

std::string DecodedChunks::ScratchPath(std::int32_t number) const {
  return io::JoinPath(dir_, ".crossdock-decoded-" + std::to_string(number));
}

Status DecodedChunks::ReadAt(std::int32_t number, std::int64_t offset, std::span<std::byte> out, const OpenStored& open) {
  Decoded& decoded = *chunks_[static_cast<std::size_t>(number)];
  while (decoded.decoding && DecodeAhead(number, open)) {
  }
  {
    const std::lock_guard lock(decoded.mutex);
    if (decoded.held == 0 && decoded.scratch == nullptr) CROSSDOCK_RETURN_IF_ERROR(Decode(decoded, number, open, true));
  }
  // What was decoded stays as it is until the last Release, which comes after this.
  if (decoded.held == 0) return decoded.scratch->ReadAt(offset, out);
  CROSSDOCK_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(out.size()) <= decoded.held);
  std::memcpy(out.data(), decoded.memory.data() + offset, out.size());
  return OkStatus();
}

bool DecodedChunks::DecodeAhead(std::int32_t number, const OpenStored& open) {
  const std::size_t from = static_cast<std::size_t>(position_[static_cast<std::size_t>(number)]) + 1;
  for (std::size_t i = from; i < std::min(order_.size(), from + kLookAhead); ++i) {
    Decoded& next = *chunks_[static_cast<std::size_t>(order_[i])];
    if (next.expected == 0) continue;
    const std::unique_lock lock(next.mutex, std::try_to_lock);
    if (!lock || next.held != 0 || next.scratch != nullptr) continue;
    // What is wrong with it is told when somebody needs it.
    return Decode(next, order_[i], open, false) && next.held != 0;
  }
  return false;
}

Status DecodedChunks::Decode(Decoded& decoded, std::int32_t number, const OpenStored& open, bool may_spool) {
  const Catalog& catalog = reader_.catalog();
  const Entry& entry = catalog.entries[static_cast<std::size_t>(decoded.entry)];
  const Chunk& chunk = entry.chunks[static_cast<std::size_t>(decoded.chunk)];
  const auto decode = [&]() -> Status {
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(entry.dtype, chunk.box.sizes));
    CROSSDOCK_ASSIGN_OR_RETURN(std::optional<BufferPool::Lease> room, Room(bytes));
    if (!room && !may_spool) return OkStatus();
    if (room) {
      decoded.memory = std::move(*room);
      decoded.held = decoded.memory.size();
    }
    CROSSDOCK_ASSIGN_OR_RETURN(const auto file, open(chunk.file, chunk.bytes.length));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto stream, reader_.OpenEncoded(decoded.entry, decoded.chunk, *file));
    CROSSDOCK_RETURN_IF_ERROR(decoded.held != 0 ? Pull(*stream, {decoded.memory.data(), static_cast<std::size_t>(bytes)})
                                                : Spool(decoded, number, *stream, bytes));
    file->DropCache(chunk.bytes.offset, chunk.bytes.length);
    return OkStatus();
  };
  decoded.decoding = true;
  Status done = decode();
  decoded.decoding = false;
  if (done) return done;
  if (decoded.held == 0) (void)io::RemoveFileIfPresent(storage_, ScratchPath(number));
  Forget(decoded);
  Error error = std::move(done).error();
  if (error.tensor.empty()) error.tensor = entry.name;
  return error;
}

Result<std::optional<BufferPool::Lease>> DecodedChunks::Room(std::int64_t bytes) {
  const std::int64_t size = BufferPool::ExactSize(bytes);
  if (held_.fetch_add(size) + size <= kept_) {
    CROSSDOCK_ASSIGN_OR_RETURN(auto lease, pool_.TryTake(bytes));
    if (lease) return lease;
  }
  held_ -= size;
  return std::optional<BufferPool::Lease>();
}

Status DecodedChunks::Pull(formats::ElementStream& stream, std::span<std::byte> out) const {
  while (!out.empty()) {
    if (stopped_()) return MakeError(ErrorCode::kCancelled, "interrupted");
    const auto part = out.first(std::min(out.size(), static_cast<std::size_t>(kPiece)));
    CROSSDOCK_RETURN_IF_ERROR(stream.Read(part));
    out = out.subspan(part.size());
  }
  return OkStatus();
}

Status DecodedChunks::Spool(Decoded& decoded, std::int32_t number, formats::ElementStream& stream, std::int64_t bytes) {
  const std::string path = ScratchPath(number);
  CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(storage_, path));  // of a run that was killed
  CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_.Create(path));
  CROSSDOCK_RETURN_IF_ERROR(file->Preallocate(bytes));
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(bytes, kPiece)));
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    const auto part = std::span(piece).first(static_cast<std::size_t>(std::min(bytes - at, kPiece)));
    CROSSDOCK_RETURN_IF_ERROR(Pull(stream, part));
    CROSSDOCK_RETURN_IF_ERROR(file->WriteAt(at, part));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(decoded.scratch, storage_.OpenRead(path));
  return OkStatus();
}

}  // namespace crossdock::execute
