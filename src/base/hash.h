// SPDX-License-Identifier: Apache-2.0
/// \file  The hashes of the engine: zip CRC-32 (joinable), a joinable content digest, and a plan hash.
/// Threads: all functions are pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace crossdock {

/// CRC-32 as zip stores it (reflected 0xEDB88320), continuing from `crc` (0 to start).
[[nodiscard]] std::uint32_t Crc32(std::uint32_t crc, std::span<const std::byte> data);

/// The CRC-32 of A+B from those of A and B: Crc32Combine(crc(A), crc(B), B's length).
[[nodiscard]] std::uint32_t Crc32Combine(std::uint32_t a, std::uint32_t b, std::int64_t length_b);

/// A 128-bit digest of a byte string that can be joined like a CRC, so that the tiles of one tensor may be
/// hashed in any order by any number of threads: two independent CRC-64s (ECMA-182 and Jones, reflected).
/// It detects accidents, not forgery.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::int64_t length = 0;
  bool operator==(const Digest&) const = default;
  [[nodiscard]] std::string ToHex() const;  ///< 32 hex digits
};
[[nodiscard]] Digest DigestOf(std::span<const std::byte> data);
[[nodiscard]] Digest DigestJoin(const Digest& a, const Digest& b);

/// XXH3-128 of a string as 32 hex digits: plan hashes and other names, not data.
[[nodiscard]] std::string Fingerprint(std::string_view text);

}  // namespace crossdock
