// SPDX-License-Identifier: Apache-2.0
/// \file  Segments: an output that is made of long runs of source bytes, written down as that list, so that it can be
/// streamed through one small buffer that stays in the cache: read, checksum, write, no copy in user space.
/// This is the common case: row cuts, stacking, gate/up and query-group interleaving all move long runs.
/// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "execute/box_runs.h"
#include "formats/format.h"
#include "plan/plan.h"

namespace crossdock::execute {

/// Where a read lies, and where its bytes are wanted.
struct ReadPlace {
  std::int32_t file = -1;
  std::int64_t offset = 0;  ///< of the chunk's elements in the file
  BoxRuns runs;             ///< of the box in the chunk
  bool in_place = false;    ///< no move takes from it: it is read into the middle of an output or of the scratch
};

/// `length` bytes of the output from `offset` of a file, or zeros when file < 0.
struct Segment {
  std::int64_t at = 0;  ///< in the output
  std::int32_t file = -1;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

/// Runs shorter than this are better read together and copied: a call costs as much as moving some kilobytes.
inline constexpr std::int64_t kShortestSegment = 32 << 10;

/// Where each read of a task lies (Locate is asked once a read).
[[nodiscard]] Result<std::vector<ReadPlace>> PlaceReads(const plan::Task& task,
                                                        const formats::CheckpointReader& source);

/// The segments of output `index` in order, when all its bytes are moved unchanged in runs of kShortestSegment or
/// longer (or are whole moves, however short) out of reads that are one run each, or are read in place in such runs;
/// else nothing.
[[nodiscard]] std::optional<std::vector<Segment>> SegmentsOf(const plan::Task& task, std::int32_t index,
                                                             std::span<const ReadPlace> places);

}  // namespace crossdock::execute
