// SPDX-License-Identifier: Apache-2.0
#include "verify/stored_chunks.h"

#include <algorithm>
#include <cstring>

namespace crossdock::verify {
namespace {

constexpr std::size_t kMostStreams = 8;  // a stream holds a decoder's window
constexpr std::size_t kMostKnown = 256;
constexpr std::size_t kSkip = std::size_t{1} << 20U;

}  // namespace

Result<io::ReadFile*> StoredChunks::File(std::int32_t index) {
  auto& slot = files_[index];
  if (!slot) {
    const Catalog& catalog = reader_.catalog();
    const std::string path = io::JoinPath(catalog.root, catalog.files[static_cast<std::size_t>(index)].path);
    CROSSDOCK_ASSIGN_OR_RETURN(slot, storage_.OpenRead(path));
  }
  return slot.get();
}

Status StoredChunks::ReadAt(std::int32_t entry, std::int32_t chunk, std::int64_t offset, std::span<std::byte> out) {
  const Entry& e = reader_.catalog().entries[static_cast<std::size_t>(entry)];
  const Chunk& c = e.chunks[static_cast<std::size_t>(chunk)];
  CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange place, reader_.Locate(entry, chunk));
  if (c.encoding != ChunkEncoding::kEncoded) {
    CROSSDOCK_ASSIGN_OR_RETURN(io::ReadFile * file, File(c.file));
    return file->ReadAt(place.offset + offset, out);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(Decoded * decoded, Find({entry, chunk}, place.length));
  if (decoded->bytes.empty()) return ReadStream(*decoded, offset, out);
  std::memcpy(out.data(), decoded->bytes.data() + offset, out.size());
  return OkStatus();
}

Result<StoredChunks::Decoded*> StoredChunks::Find(Key key, std::int64_t bytes) {
  const auto known = std::find_if(decoded_.begin(), decoded_.end(), [&](const Decoded& d) { return d.key == key; });
  if (known != decoded_.end()) {
    decoded_.splice(decoded_.begin(), decoded_, known);
    return &decoded_.front();
  }
  const bool whole = bytes <= memory_;
  while (!decoded_.empty() && (decoded_.size() >= kMostKnown || (whole && kept_ + bytes > memory_))) {
    kept_ -= static_cast<std::int64_t>(decoded_.back().bytes.size());
    decoded_.pop_back();
  }
  Decoded decoded;
  decoded.key = key;
  if (whole) {
    const Chunk& chunk = reader_.catalog().entries[static_cast<std::size_t>(key.first)].chunks[static_cast<std::size_t>(key.second)];
    CROSSDOCK_ASSIGN_OR_RETURN(io::ReadFile * file, File(chunk.file));
    CROSSDOCK_ASSIGN_OR_RETURN(const auto stream, reader_.OpenEncoded(key.first, key.second, *file));
    decoded.bytes.resize(static_cast<std::size_t>(bytes));
    CROSSDOCK_RETURN_IF_ERROR(stream->Read(decoded.bytes));
    kept_ += bytes;
  }
  decoded_.push_front(std::move(decoded));
  return &decoded_.front();
}

Status StoredChunks::ReadStream(Decoded& decoded, std::int64_t offset, std::span<std::byte> out) {
  if (decoded.stream == nullptr || offset < decoded.at) {
    const auto [entry, chunk] = decoded.key;
    const Chunk& c = reader_.catalog().entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)];
    CROSSDOCK_ASSIGN_OR_RETURN(io::ReadFile * file, File(c.file));
    CROSSDOCK_ASSIGN_OR_RETURN(decoded.stream, reader_.OpenEncoded(entry, chunk, *file));
    decoded.at = 0;
    // Few decoders at a time: of the others only the place is forgotten.
    std::size_t streams = 0;
    for (Decoded& other : decoded_) {
      if (other.stream != nullptr && ++streams > kMostStreams) other.stream = nullptr;
    }
  }
  std::vector<std::byte> skipped(std::min(kSkip, static_cast<std::size_t>(offset - decoded.at)));
  while (decoded.at < offset) {
    const auto part = std::span(skipped).first(std::min(skipped.size(), static_cast<std::size_t>(offset - decoded.at)));
    CROSSDOCK_RETURN_IF_ERROR(decoded.stream->Read(part));
    decoded.at += static_cast<std::int64_t>(part.size());
  }
  CROSSDOCK_RETURN_IF_ERROR(decoded.stream->Read(out));
  decoded.at += static_cast<std::int64_t>(out.size());
  return OkStatus();
}

}  // namespace crossdock::verify
