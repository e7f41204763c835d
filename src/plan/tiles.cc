// SPDX-License-Identifier: Apache-2.0
#include "plan/tiles.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/checked_math.h"

namespace crossdock::plan {
namespace {

constexpr std::int64_t kLeastTask = std::int64_t{256} << 10U;
constexpr std::int64_t kLargestTask = std::int64_t{16} << 20U;
constexpr std::int64_t kShortRun = std::int64_t{64} << 10U;
constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

struct Cut {
  Box low, high;
  std::int64_t runs = 0;
};

/// Both parts of `tile` cut on `axis` so that `parts` tiles fill about equally; nothing when it cannot be cut there.
std::optional<Cut> CutAt(const Job& job, const Box& tile, std::size_t axis, std::int64_t parts) {
  const std::int64_t unit = job.is_pair() ? job.unit(axis) : 1;
  const std::int64_t size = tile.sizes[axis];
  if (size <= unit) return std::nullopt;
  const std::int64_t units = CeilDiv(size, unit);
  const std::int64_t share = static_cast<std::int64_t>(static_cast<double>(units) * static_cast<double>(parts / 2) /
                                                       static_cast<double>(parts));
  const std::int64_t low = std::clamp<std::int64_t>(share, 1, units - 1) * unit;
  Cut cut{tile, tile, 0};
  cut.low.sizes[axis] = low;
  cut.high.offsets[axis] += low;
  cut.high.sizes[axis] -= low;
  return cut;
}

std::optional<Cut> BestCut(const Job& job, const Box& tile, const TileLimits& limits, std::int64_t parts,
                           TaskBuilder& builder) {
  std::optional<Cut> best;
  for (std::size_t axis = 0; axis < tile.rank(); ++axis) {
    std::optional<Cut> cut = CutAt(job, tile, axis, parts);
    if (!cut) continue;
    if (limits.contiguous_outputs && !builder.KeepsContiguous(job, tile, axis, cut->high.offsets[axis])) continue;
    cut->runs = builder.Runs(job, cut->low).total() + builder.Runs(job, cut->high).total();
    if (!best || cut->runs < best->runs) best = std::move(cut);
  }
  return best;
}

/// True when `cut` would shorten runs (a transpose; any other cut adds a run or two) that are short already.
bool ShortensRuns(const Job& job, const Box& tile, const Cut& cut, TaskBuilder& builder) {
  const RunCounts runs = builder.Runs(job, tile);
  const std::int64_t shortest = tile.count() * ElementSize(job.expr->dtype) / std::max(runs.read, runs.written);
  return shortest < kShortRun && cut.runs > runs.total() + runs.total() / 4;
}

bool IsEncoded(const Entry& entry) { return !entry.chunks.empty() && entry.chunks.front().encoding == ChunkEncoding::kEncoded; }

Error TooLarge(const Job& job, const Catalog& target, const Task& task, const TileLimits& limits) {
  return MakeError(ErrorCode::kUsage, "the memory is too small for the smallest part of a tensor that can be worked on")
      .WithTensor(target.entries[static_cast<std::size_t>(job.entry)].name)
      .WithExpected(fmt::format("at least {} bytes", 2 * task.buffer_bytes))
      .WithFound(fmt::format("{} bytes", limits.memory))
      .WithHint(fmt::format("pass `--memory {}MiB`", CeilDiv(2 * task.buffer_bytes, kMiB)));
}

/// Bands of rows of a tensor that has one scale, each within the bound where a row is.
std::vector<Task> CutBands(const Job& job, const TileLimits& limits, TaskBuilder& builder) {
  std::vector<Task> bands;
  std::vector<Box> todo = {Box::Whole(job.expr->shape)};
  while (!todo.empty()) {
    Box band = todo.back();
    todo.pop_back();
    if (band.sizes[0] == 1 || builder.OutputBytes(job, band) <= limits.task_bytes) {
      Task task = builder.Build(job, band);
      if (band.sizes[0] == 1 || task.buffer_bytes <= limits.task_bytes) {
        bands.push_back(std::move(task));
        continue;
      }
    }
    const std::int64_t half = band.sizes[0] / 2;
    Box low = band;
    low.sizes[0] = half;
    band.offsets[0] += half;
    band.sizes[0] -= half;
    todo.push_back(std::move(band));
    todo.push_back(std::move(low));
  }
  return bands;
}

/// A tensor with one scale is one task: at once where a quarter of the memory holds it, else by bands that are read twice.
Status CutWhole(const Job& job, const Catalog& target, const TileLimits& limits, TaskBuilder& builder, std::vector<Task>& tasks) {
  const Box whole = Box::Whole(job.expr->shape);
  const std::int64_t bound = std::max(limits.memory / 4, limits.task_bytes);
  if (builder.OutputBytes(job, whole) <= bound) {
    Task task = builder.Build(job, whole);
    if (task.buffer_bytes <= bound) {
      tasks.push_back(std::move(task));
      return OkStatus();
    }
  }
  Quantize step{job.fp8, job.expr->dtype, whole.sizes[0], whole.sizes[1], 0, 0, 1, CutBands(job, limits, builder), {}};
  Task task = builder.BuildOutputs(job, whole);
  for (const Task& band : step.bands) {
    task.reads.insert(task.reads.end(), band.reads.begin(), band.reads.end());
    task.buffer_bytes = std::max(task.buffer_bytes, band.buffer_bytes);
  }
  task.quantize = std::make_shared<const Quantize>(std::move(step));
  if (task.buffer_bytes > limits.memory / 2) return TooLarge(job, target, task, limits);
  tasks.push_back(std::move(task));
  return OkStatus();
}

}  // namespace

std::int64_t TaskBytes(std::int64_t memory) { return std::clamp(memory / 16, kLeastTask, kLargestTask); }

Status CutJob(const Job& job, const Catalog& target, const TileLimits& limits, TaskBuilder& builder,
              std::vector<Task>& tasks) {
  const Entry& entry = target.entries[static_cast<std::size_t>(job.entry)];
  if (IsEncoded(entry)) {
    // What is encoded is encoded whole, by one worker: as much again is held for the result.
    for (const Chunk& chunk : entry.chunks) {
      Task task = builder.Build(job, chunk.box);
      if (task.buffer_bytes + chunk.bytes.length > limits.memory / 2) {
        task.buffer_bytes += chunk.bytes.length;
        return TooLarge(job, target, task, limits);
      }
      tasks.push_back(std::move(task));
    }
    return OkStatus();
  }
  if (job.is_pair() && job.fp8.whole) return CutWhole(job, target, limits, builder, tasks);
  return CutBoxes(job, target, job.is_pair() ? PairRegions(job, target) : std::vector<Box>{Box::Whole(job.expr->shape)}, limits, builder, tasks);
}

Status CutBoxes(const Job& job, const Catalog& target, std::vector<Box> todo, const TileLimits& limits, TaskBuilder& builder,
                std::vector<Task>& tasks) {
  std::reverse(todo.begin(), todo.end());
  while (!todo.empty()) {
    const Box tile = todo.back();
    todo.pop_back();
    std::int64_t parts = CeilDiv(builder.OutputBytes(job, tile), limits.task_bytes);
    std::optional<Task> task;
    if (parts <= 1) {
      task = builder.Build(job, tile);
      if (task->buffer_bytes <= limits.task_bytes) {
        tasks.push_back(std::move(*task));
        continue;
      }
      parts = CeilDiv(task->buffer_bytes, limits.task_bytes);
    }
    if (std::optional<Cut> cut = BestCut(job, tile, limits, parts, builder)) {
      if (builder.OutputBytes(job, tile) <= limits.short_run_bytes && ShortensRuns(job, tile, *cut, builder)) {
        if (!task) task = builder.Build(job, tile);
        if (task->buffer_bytes <= limits.short_run_bytes) {
          tasks.push_back(std::move(*task));
          continue;
        }
      }
      todo.push_back(std::move(cut->high));
      todo.push_back(std::move(cut->low));
      continue;
    }
    if (!task) task = builder.Build(job, tile);
    if (task->buffer_bytes > limits.memory / 2) return TooLarge(job, target, *task, limits);
    tasks.push_back(std::move(*task));
  }
  return OkStatus();
}

}  // namespace crossdock::plan
