// SPDX-License-Identifier: Apache-2.0
/// \file  Tiles: how target tensors are cut into tasks.
/// The bound of a task follows from the memory alone: a sixteenth of it, at least 256 KiB and at most 16 MiB (larger
/// ones leave the caches and make progress jump). So the cut, and with it the plan's hash and a journal, is the same
/// for every number of threads; how many tasks run at once is the executor's business, by its byte budget. Where the
/// tables of the plan itself would not leave room, the bound is doubled until they do (planner.cc).
/// The output's bytes depend on neither: a task only copies or converts element by element, or whole blocks.
///
/// A tensor that does not fit is halved until it does, each time along the axis that leaves the fewest contiguous runs
/// to read and write, the outermost of equals. That one rule gives bands of rows where a side is cut by columns, one
/// layer a tile in a stack, and near-square tiles under a transpose, where the runs of both sides stay balanced.
/// A quantized tensor is cut between blocks. One with a single scale is not cut: it is one task where a quarter of the memory
/// holds it, else one of bands that are read twice (plan.h, Quantize).
/// Under a transpose every cut shortens runs. There a tile whose runs are below 64 KiB may be as large as an eighth of
/// the memory: fewer tasks at once cost less than more and shorter reads.
/// A chunk that is encoded is a tile of its own, whatever its size.
#pragma once

#include <cstdint>
#include <vector>

#include "crossdock/result.h"
#include "plan/jobs.h"
#include "plan/plan.h"
#include "plan/task_builder.h"

namespace crossdock::plan {

[[nodiscard]] std::int64_t TaskBytes(std::int64_t memory);

struct TileLimits {
  std::int64_t task_bytes = 0;
  std::int64_t short_run_bytes = 0;  ///< the bound where cutting shortens runs that are short already
  std::int64_t memory = 0;           ///< a tile that cannot be cut further may take half of this
  bool contiguous_outputs = false;
};

/// The same for `boxes` of the job's tensor, each by itself. Of a pair they are whole blocks and the pair has more than one, or
/// it is quantized in parts; no chunk is encoded.
[[nodiscard]] Status CutBoxes(const Job& job, const Catalog& target, std::vector<Box> boxes, const TileLimits& limits, TaskBuilder& builder,
                              std::vector<Task>& tasks);

/// Appends the tasks of one job to `tasks`, in the order of the target. kUsage when the smallest tile is too large for
/// the memory, with the least that would do.
[[nodiscard]] Status CutJob(const Job& job, const Catalog& target, const TileLimits& limits, TaskBuilder& builder,
                            std::vector<Task>& tasks);

}  // namespace crossdock::plan
