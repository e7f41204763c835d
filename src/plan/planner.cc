// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/checked_math.h"
#include "plan/check.h"
#include "plan/fingerprint.h"
#include "plan/io_order.h"
#include "plan/jobs.h"
#include "plan/task_builder.h"
#include "plan/tiles.h"

namespace crossdock::plan {
namespace {

constexpr std::int64_t kJoinLimit = 1 << 20;

template <typename T>
std::int64_t HeapBytes(const std::vector<T>& v) {
  return static_cast<std::int64_t>(v.capacity() * sizeof(T));
}

std::int64_t CatalogBytes(const Catalog& catalog) {
  std::int64_t bytes = HeapBytes(catalog.entries) + HeapBytes(catalog.files) + HeapBytes(catalog.object_refs);
  for (const Entry& e : catalog.entries) bytes += static_cast<std::int64_t>(e.name.size()) + HeapBytes(e.chunks);
  for (const FileRef& f : catalog.files) bytes += static_cast<std::int64_t>(f.path.size());
  return bytes;
}

std::int64_t TaskListBytes(const std::vector<Task>& tasks) {
  std::int64_t bytes = HeapBytes(tasks);
  for (const Task& t : tasks) {
    if (t.quantize) bytes += static_cast<std::int64_t>(sizeof(Quantize)) + TaskListBytes(t.quantize->bands);
    bytes += HeapBytes(t.reads) + HeapBytes(t.outputs) + HeapBytes(t.moves) + HeapBytes(t.dequantize);
    for (const Move& m : t.moves) bytes += HeapBytes(m.copy.dims) + HeapBytes(m.ops);
  }
  return bytes;
}

struct Tables {
  std::int64_t catalogs = 0;
  std::int64_t tasks = 0;
  std::int64_t largest_task = 0;
  /// What must be in memory at once, however few tasks run.
  [[nodiscard]] std::int64_t least() const { return catalogs + tasks + largest_task; }
};

Error TooSmall(const Tables& tables, std::int64_t memory) {
  return MakeError(ErrorCode::kUsage, "the memory is too small for the tables of the plan and one task")
      .WithExpected(fmt::format("at least {} bytes", tables.least()))
      .WithFound(fmt::format("{} bytes", memory))
      .WithHint(fmt::format("pass `--memory {}MiB`", CeilDiv(tables.least(), 1 << 20)));
}

/// All tasks, cut to `plan.task_bytes`, and what they take.
Result<Tables> CutAll(const Catalog& source, const Catalog& target, const CutTasks& cut, const PlanOptions& options, Plan& plan) {
  TaskBuilder builder(source, target);
  const std::int64_t short_runs = options.task_bytes > 0 ? 0 : std::max(plan.task_bytes, options.memory / 8);
  const TileLimits limits{plan.task_bytes, short_runs, options.memory, options.contiguous_outputs};
  std::vector<Task> tasks;
  CROSSDOCK_RETURN_IF_ERROR(cut(limits, builder, tasks));
  plan.tasks = JoinSmall(InSourceOrder(std::move(tasks), source), std::min(kJoinLimit, plan.task_bytes));
  Tables tables{CatalogBytes(source) + CatalogBytes(target), TaskListBytes(plan.tasks), 0};
  for (const Task& t : plan.tasks) tables.largest_task = std::max(tables.largest_task, t.buffer_bytes);
  return tables;
}

/// The size of all encoded chunks that are read, when they are decoded.
std::int64_t DecodedBytes(const Catalog& source, const std::vector<Task>& tasks) {
  std::set<std::pair<std::int32_t, std::int32_t>> chunks;
  for (const Task& task : tasks) {
    for (const Read& read : task.reads) {
      const Chunk& chunk = source.entries[static_cast<std::size_t>(read.entry)].chunks[static_cast<std::size_t>(read.chunk)];
      if (chunk.encoding == ChunkEncoding::kEncoded) chunks.emplace(read.entry, read.chunk);
    }
  }
  std::int64_t bytes = 0;
  for (const auto& [entry, chunk] : chunks) {
    const Entry& e = source.entries[static_cast<std::size_t>(entry)];
    const auto size = ByteSize(e.dtype, e.chunks[static_cast<std::size_t>(chunk)].box.sizes);
    bytes = CheckedAdd(bytes, size ? *size : 0).value_or(bytes);
  }
  return bytes;
}

}  // namespace

Result<Plan> MakePlan(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs,
                      const PlanOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInputs(source, target, exprs));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<Job> jobs, MakeJobs(target, exprs));
  const auto cut = [&](const TileLimits& limits, TaskBuilder& builder, std::vector<Task>& tasks) -> Status {
    for (const Job& job : jobs) CROSSDOCK_RETURN_IF_ERROR(CutJob(job, target, limits, builder, tasks));
    return OkStatus();
  };
  CROSSDOCK_ASSIGN_OR_RETURN(Plan plan, PlanTasks(source, target, cut, options));
  plan.hash = PlanHash(source, target, exprs, plan.tasks);
  return plan;
}

Result<Plan> PlanTasks(const Catalog& source, const Catalog& target, const CutTasks& cut, const PlanOptions& options) {
  Plan plan;
  plan.task_bytes = options.task_bytes > 0 ? options.task_bytes : TaskBytes(options.memory);
  CROSSDOCK_ASSIGN_OR_RETURN(Tables tables, CutAll(source, target, cut, options, plan));
  // A long list of small tasks may itself be what does not fit; larger tasks make it shorter.
  while (tables.least() > options.memory && options.task_bytes == 0 && plan.task_bytes <= options.memory / 4) {
    plan.task_bytes *= 2;
    CROSSDOCK_ASSIGN_OR_RETURN(tables, CutAll(source, target, cut, options, plan));
  }
  if (tables.least() > options.memory) return TooSmall(tables, options.memory);
  for (const Task& t : plan.tasks) {
    const std::int64_t times = t.quantize && (!t.quantize->bands.empty() || t.quantize->part) ? 2 : 1;
    for (const Read& r : t.reads) plan.bytes_read += r.bytes * times;
    for (const Output& o : t.outputs) plan.bytes_written += o.bytes;
  }
  // Buffers of all threads and decoded chunks, but never more than the budget leaves: the executor runs fewer tasks, and lets
  // chunks go to a file, rather than exceed it.
  const std::int64_t buffers = CheckedMul(tables.largest_task, std::max(options.threads, 1)).value_or(options.memory);
  const std::int64_t wanted = CheckedAdd(buffers, DecodedBytes(source, plan.tasks)).value_or(options.memory);
  const std::int64_t held = tables.catalogs + tables.tasks;
  plan.peak_memory = held + std::min(wanted, options.memory - held);
  plan.task_bytes = std::max(plan.task_bytes, tables.largest_task);
  return plan;
}

}  // namespace crossdock::plan
