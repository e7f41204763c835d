// SPDX-License-Identifier: Apache-2.0
/// \file  The manifest: how the database is written, and where the tree of its newest generation begins.
/// On disk (FORMAT.md, 4), in the envelope of Record::kManifest: uuid (16 bytes), u8 kind (0 single, 1 numbered), uv largest inline
/// value, uv largest node, u8 log2 of the version tree's arity, uv compression (0 none, 1 zstd: then i32 level); then, unless
/// numbered, a table of data files, the newest generations column by column, and references to nodes of older ones, which a
/// reader of the newest has no use for.
/// A numbered manifest.ocdbt holds no generations: they are in `manifest.<16 hex digits>`, the greatest name counts.
/// Errors: kCorrupt, kUnsupported. Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "formats/ocdbt/node.h"

namespace crossdock::formats::ocdbt {

/// Where the root of a tree lies; `file` is empty for an empty tree.
struct Root {
  std::uint64_t generation = 1;
  int height = 0;
  DataFile file;
  std::int64_t offset = 0;
  std::int64_t length = 0;
  Statistics statistics;
  std::uint64_t commit_time_ns = 0;  ///< since 1970
  [[nodiscard]] bool empty() const { return file.relative.empty(); }
};

struct Manifest {
  std::array<char, 16> uuid{};
  bool numbered = false;
  std::uint64_t largest_inline = 1024;        ///< as Orbax sets them
  std::uint64_t largest_node = 100'000'000;
  std::optional<Root> newest;                 ///< absent in a numbered manifest.ocdbt
};

[[nodiscard]] Result<Manifest> ReadManifest(std::string_view record);
/// A single manifest of one generation. REQUIRES: `newest`, not numbered.
[[nodiscard]] std::string WriteManifest(const Manifest& manifest);

}  // namespace crossdock::formats::ocdbt
