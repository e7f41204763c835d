// SPDX-License-Identifier: Apache-2.0
/// \file  Arithmetic on sizes that come from a file: overflow is an answer, not undefined behaviour.
/// Every size, offset or count read from input passes here before use.
#pragma once

#include <cstdint>
#include <optional>

namespace crossdock {

[[nodiscard]] inline std::optional<std::int64_t> CheckedAdd(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

[[nodiscard]] inline std::optional<std::int64_t> CheckedMul(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

[[nodiscard]] inline std::optional<std::int64_t> CheckedFromU64(std::uint64_t v) {
  if (v > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<std::int64_t>(v);
}

/// ceil(a / b). REQUIRES: a >= 0, b > 0, no overflow of a + b - 1.
[[nodiscard]] constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The smallest multiple of `unit` that is >= a. REQUIRES: as CeilDiv.
[[nodiscard]] constexpr std::int64_t RoundUp(std::int64_t a, std::int64_t unit) {
  return CeilDiv(a, unit) * unit;
}

}  // namespace crossdock
