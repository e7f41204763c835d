// SPDX-License-Identifier: Apache-2.0
#include "formats/ocdbt/envelope.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "formats/ocdbt/columns.h"

namespace crossdock::formats::ocdbt {
namespace {

constexpr std::size_t kHead = 12;
constexpr std::size_t kSum = 4;
constexpr int kLevel = 3;

std::uint32_t Checksum(std::string_view bytes) { return Crc32c(0, std::as_bytes(std::span(bytes.data(), bytes.size()))); }

std::uint32_t BigEndian(std::uint32_t value) { return __builtin_bswap32(value); }

Error TooLarge() {
  return MakeError(ErrorCode::kUnsupported, "an OCDBT record is too large")
      .WithExpected("at most " + std::to_string(kLargestBody) + " bytes when it is decoded");
}

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

/// One frame, whose header may not say how large it is.
Result<std::string> Decompress(std::string_view frame) {
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (context == nullptr) return MakeError(ErrorCode::kIo, "the system gives no memory for a zstd decoder");
  ZSTD_inBuffer from{frame.data(), frame.size(), 0};
  std::string body;
  std::size_t used = 0;
  while (true) {
    if (used == body.size()) {
      if (static_cast<std::int64_t>(used) >= kLargestBody) return TooLarge();
      body.resize(std::clamp(2 * used, std::max(4 * frame.size(), std::size_t{4096}), static_cast<std::size_t>(kLargestBody)));
    }
    ZSTD_outBuffer to{body.data(), body.size(), used};
    const std::size_t left = ZSTD_decompressStream(context.get(), &to, &from);
    if (ZSTD_isError(left) != 0U) return Malformed("its zstd frame cannot be decoded").WithFound(ZSTD_getErrorName(left));
    const bool stuck = to.pos == used && from.pos == from.size && to.pos < to.size;
    used = to.pos;
    if (left == 0) break;
    if (stuck) return Malformed("its zstd frame ends too early");
  }
  if (from.pos != from.size) return Malformed("bytes follow its zstd frame");
  body.resize(used);
  return body;
}

}  // namespace

Result<std::string> OpenEnvelope(Record record, std::string_view bytes) {
  if (bytes.size() < kHead + 2 + kSum) return Malformed("it is too short");
  if (BigEndian(LoadLittle<std::uint32_t>(bytes.data())) != static_cast<std::uint32_t>(record)) {
    return Malformed(record == Record::kManifest ? "it does not begin as a manifest" : "it does not begin as a node");
  }
  if (LoadLittle<std::uint64_t>(bytes.data() + 4) != bytes.size()) {
    return Malformed("its length is another than it says")
        .WithExpected(std::to_string(LoadLittle<std::uint64_t>(bytes.data() + 4)) + " bytes")
        .WithFound(std::to_string(bytes.size()));
  }
  const std::string_view summed = bytes.substr(0, bytes.size() - kSum);
  if (Checksum(summed) != LoadLittle<std::uint32_t>(bytes.data() + summed.size())) return Malformed("its CRC-32C is another than its bytes'");
  Cursor cursor(summed.substr(kHead));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t version, cursor.Uv());
  CROSSDOCK_ASSIGN_OR_RETURN(const std::uint64_t compression, cursor.Uv());
  if (version != 0 || compression > 1) {
    return MakeError(ErrorCode::kUnsupported, "an OCDBT record is of a kind that is not read")
        .WithExpected("version 0, compression none or zstd")
        .WithFound("version " + std::to_string(version) + ", compression " + std::to_string(compression));
  }
  if (compression == 1) return Decompress(cursor.left());
  if (static_cast<std::int64_t>(cursor.left().size()) > kLargestBody) return TooLarge();
  return std::string(cursor.left());
}

std::string Envelope(Record record, std::string_view body) {
  std::string packed(ZSTD_compressBound(body.size()), '\0');
  const std::size_t n = ZSTD_compress(packed.data(), packed.size(), body.data(), body.size(), kLevel);
  CROSSDOCK_CHECK(ZSTD_isError(n) == 0U);  // the room is what the library asks for
  packed.resize(n);
  const bool smaller = packed.size() < body.size();
  std::string out(4, '\0');
  StoreLittle(out.data(), BigEndian(static_cast<std::uint32_t>(record)));
  const std::string_view held = smaller ? std::string_view(packed) : body;
  PutU64(out, kHead + 2 + held.size() + kSum);
  PutUv(out, 0);
  PutUv(out, smaller ? 1 : 0);
  out += held;
  char sum[kSum];
  StoreLittle(sum, Checksum(out));
  out.append(sum, kSum);
  return out;
}

}  // namespace crossdock::formats::ocdbt
