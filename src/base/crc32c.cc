// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace crossdock {

std::uint32_t Crc32c(std::uint32_t crc, std::span<const std::byte> data) {
  constexpr std::size_t kMost = std::size_t{1} << 30U;  // the library counts in int
  crc = ~crc;
  while (!data.empty()) {
    const auto part = data.first(std::min(data.size(), kMost));
    // The library only reads, but its signature is not const.
    auto* bytes = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(part.data()));
    crc = crc32_iscsi(bytes, static_cast<int>(part.size()), crc);
    data = data.subspan(part.size());
  }
  return ~crc;
}

}  // namespace crossdock
