// SPDX-License-Identifier: Apache-2.0
/// \file  A chunk as one zstd frame: with its content's size, without a checksum, as zarr's zstd codec writes it.
/// Equal bytes and levels give equal frames within one version of the library. Errors: kIo (no memory). Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "crossdock/result.h"

namespace crossdock::formats::orbax {

inline constexpr int kHighestZstdLevel = 22;

/// The most that a frame of so many bytes takes.
[[nodiscard]] std::int64_t ZstdBound(std::int64_t bytes);
[[nodiscard]] Result<std::string> CompressZstd(std::span<const std::byte> bytes, int level);

}  // namespace crossdock::formats::orbax
