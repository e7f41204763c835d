// SPDX-License-Identifier: Apache-2.0
/// \file  The local file system with its ways of moving bytes chosen: for tests of one of them. All else takes storage.h's.
#pragma once

#include <cstdint>
#include <memory>

#include "io/storage.h"

namespace crossdock::io {

/// When large writes go past the page cache (direct_file.h). Where the system refuses, they go through it.
enum class DirectWrites : std::uint8_t {
  kNever,
  kWhereItPays,  ///< ext4 and XFS
  kAlways,
};

[[nodiscard]] std::unique_ptr<Storage> MakeLocalStorage(SystemCopies copies, DirectWrites direct);

}  // namespace crossdock::io
