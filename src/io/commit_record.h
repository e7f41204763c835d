// SPDX-License-Identifier: Apache-2.0
/// \file  CommitRecord: what a commit still has to do, written before its first irreversible step.
/// On disk: "crossdock-commit 1 INODE COUNT\n", then for each marker "PATH_BYTES CONTENT_BYTES\n" path content "\n",
/// last the XXH3-128 of all before as 32 hex digits and "\n". A record that does not match its hash was never
/// durable, so its commit had not begun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/staging.h"

namespace crossdock::io {

struct CommitRecord {
  std::uint64_t inode = 0;  ///< of the staged tree: tells the staging name from the tree it held
  std::vector<Marker> markers;
};

[[nodiscard]] std::string PrintCommitRecord(const CommitRecord& record);
[[nodiscard]] std::optional<CommitRecord> ParseCommitRecord(std::string_view text);

}  // namespace crossdock::io
