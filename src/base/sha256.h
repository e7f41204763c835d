// SPDX-License-Identifier: Apache-2.0
/// \file  SHA-256 (FIPS 180-4), for the checksums that other programs leave beside their files; our own digests are in hash.h.
/// Threads: pure.
#pragma once

#include <string>
#include <string_view>

namespace crossdock {

/// 64 lower-case hex digits.
[[nodiscard]] std::string Sha256Hex(std::string_view data);

}  // namespace crossdock
