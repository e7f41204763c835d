// SPDX-License-Identifier: Apache-2.0
/// \file  The decoders of codecs.h, each a stream that draws the encoded bytes from another.
/// Memory of one: zstd the window that its frame asks for, at most 128 MiB (more is refused), gzip 32 KiB, blosc one block, at
/// most 64 MiB, and its table of blocks.
/// Errors: kCorrupt for bytes that contradict the codec, or end within it; kUnsupported for what is too large.
#pragma once

#include <memory>

#include "crossdock/result.h"
#include "formats/zarr/byte_stream.h"
#include "formats/zarr/codecs.h"

namespace crossdock::formats::zarr {

/// One frame or several, one after the other (RFC 8878).
[[nodiscard]] Result<std::unique_ptr<ByteStream>> DecodeZstd(std::unique_ptr<ByteStream> encoded);
/// gzip members (RFC 1952) or a zlib stream (RFC 1950), told by their first bytes.
[[nodiscard]] Result<std::unique_ptr<ByteStream>> DecodeGzip(std::unique_ptr<ByteStream> encoded);
/// A buffer of c-blosc 1: 16 bytes of header, a table of blocks, blocks in any order.
[[nodiscard]] Result<std::unique_ptr<ByteStream>> DecodeBlosc(StoredBytes encoded);
/// All but the last four bytes, which must be the CRC-32C of the others.
[[nodiscard]] std::unique_ptr<ByteStream> CheckCrc32c(std::unique_ptr<ByteStream> encoded);

/// The bytes that `codecs` were applied to. REQUIRES: blosc, where it occurs, is the only one.
[[nodiscard]] Result<std::unique_ptr<ByteStream>> Decode(const Codecs& codecs, StoredBytes stored);

}  // namespace crossdock::formats::zarr
