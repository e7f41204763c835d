// SPDX-License-Identifier: Apache-2.0
/// \file  Loads and stores of fixed-width integers with an explicit byte order.
/// On-disk structs are decoded field by field with these; no struct is ever laid over file bytes.
/// REQUIRES of all: the pointer has room for the width. Bounds are the caller's, who knows the buffer.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace crossdock {

static_assert(std::endian::native == std::endian::little,
              "tensor data is moved as it lies; a big-endian host would need a swap in every kernel");

template <std::integral T>
[[nodiscard]] inline T LoadLittle(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <std::integral T>
inline void StoreLittle(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

[[nodiscard]] inline std::uint64_t LoadBig64(const void* p) {
  return __builtin_bswap64(LoadLittle<std::uint64_t>(p));
}

inline void StoreBig64(void* p, std::uint64_t v) { StoreLittle(p, __builtin_bswap64(v)); }

}  // namespace crossdock
