// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <isa-l/crc64.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>

namespace crossdock {
namespace {

constexpr std::uint64_t kEcmaReflected = 0xC96C5795D7870F42ULL;
constexpr std::uint64_t kJonesReflected = 0x95AC9329AC4BC9B5ULL;

/// Multiplies two polynomials over GF(2) modulo a reflected degree-64 polynomial.
std::uint64_t MulMod(std::uint64_t a, std::uint64_t b, std::uint64_t poly) {
  std::uint64_t product = 0;
  for (std::uint64_t bit = 1ULL << 63U; bit != 0; bit >>= 1U) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1U) != 0 ? (b >> 1U) ^ poly : b >> 1U;
  }
  return product;
}

/// x^(8 n) modulo the polynomial, reflected: bit 63 is x^0.
std::uint64_t PowerOfBytes(std::int64_t n, std::uint64_t poly) {
  std::uint64_t result = 1ULL << 63U;
  std::uint64_t base = 1ULL << 55U;  // x^8
  for (auto e = static_cast<std::uint64_t>(n); e != 0; e >>= 1U) {
    if ((e & 1U) != 0) result = MulMod(result, base, poly);
    base = MulMod(base, base, poly);
  }
  return result;
}

}  // namespace

std::uint32_t Crc32(std::uint32_t crc, std::span<const std::byte> data) {
  const auto* p = reinterpret_cast<const unsigned char*>(data.data());
  for (std::size_t left = data.size(); left != 0;) {
    const std::size_t n = std::min<std::size_t>(left, std::size_t{1} << 30U);
    crc = crc32_gzip_refl(crc, p, n);
    p += n;
    left -= n;
  }
  return crc;
}

std::uint32_t Crc32Combine(std::uint32_t a, std::uint32_t b, std::int64_t length_b) {
  return static_cast<std::uint32_t>(crc32_combine(a, b, length_b));
}

Digest DigestOf(std::span<const std::byte> data) {
  const auto* p = reinterpret_cast<const unsigned char*>(data.data());
  Digest d;
  d.length = static_cast<std::int64_t>(data.size());
  d.low = crc64_ecma_refl(0, p, data.size());
  d.high = crc64_jones_refl(0, p, data.size());
  return d;
}

Digest DigestJoin(const Digest& a, const Digest& b) {
  // ISA-L's functions invert before and after, so the inversions cancel as in zlib's crc32_combine.
  Digest d;
  d.length = a.length + b.length;
  d.low = MulMod(PowerOfBytes(b.length, kEcmaReflected), a.low, kEcmaReflected) ^ b.low;
  d.high = MulMod(PowerOfBytes(b.length, kJonesReflected), a.high, kJonesReflected) ^ b.high;
  return d;
}

std::string Digest::ToHex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::string Fingerprint(std::string_view text) {
  const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace crossdock
