// SPDX-License-Identifier: Apache-2.0
/// \file  CRC-32C (Castagnoli, reflected 0x82F63B78), as zarr's `crc32c` codec and OCDBT store it: plain, not masked.
/// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace crossdock {

/// Continues from `crc`, the checksum of what came before (0 to start).
[[nodiscard]] std::uint32_t Crc32c(std::uint32_t crc, std::span<const std::byte> data);

}  // namespace crossdock
