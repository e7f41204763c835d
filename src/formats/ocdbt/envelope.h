// SPDX-License-Identifier: Apache-2.0
/// \file  The envelope of manifests and nodes: magic, length, version, compression, body, checksum.
/// On disk (FORMAT.md, 2): u32 big-endian magic, u64 length of all of it, uv version (0), uv compression (0 none, 1 zstd), the body or
/// one zstd frame of it, u32 CRC-32C of everything before.
/// Errors: kCorrupt, kUnsupported (another version or compression, a body of more than kLargestBody). Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "crossdock/result.h"

namespace crossdock::formats::ocdbt {

enum class Record : std::uint32_t {
  kManifest = 0x0cdb3a2a,
  kNode = 0x0cdb20de,
};

/// Decoded; TensorStore keeps nodes below 100,000,000 bytes where Orbax sets its limit, and 8 MiB by default.
inline constexpr std::int64_t kLargestBody = std::int64_t{512} << 20U;

/// The body of a record that is all of `bytes`.
[[nodiscard]] Result<std::string> OpenEnvelope(Record record, std::string_view bytes);
/// Compressed by zstd when that makes it smaller.
[[nodiscard]] std::string Envelope(Record record, std::string_view body);

}  // namespace crossdock::formats::ocdbt
