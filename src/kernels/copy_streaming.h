// SPDX-License-Identifier: Apache-2.0
/// \file  Copies what is not read again soon: past the caches, so that memory is written without having been read first.
/// Threads: any.
#pragma once

#include <cstddef>

namespace crossdock::kernels {

/// to[0..size) = from[0..size), which do not overlap. As quick as one memcpy of gigabytes, for pieces of any size: memcpy itself takes that way only
/// above a size that grows with the machine's cache, hundreds of megabytes on large ones, and below it costs up to twice as much.
void CopyStreaming(const std::byte* from, std::byte* to, std::size_t size);

}  // namespace crossdock::kernels
