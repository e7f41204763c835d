// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "plan/check.h"
#include "plan/fingerprint.h"
#include "plan/io_order.h"
#include "plan/jobs.h"
#include "plan/task_builder.h"
#include "plan/tiles.h"

namespace crossdock::plan {
namespace {

constexpr std::int64_t kJoinLimit = std::int64_t{1} << 20U;
constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

template <typename T>
std::int64_t HeapBytes(const std::vector<T>& v) {
  return static_cast<std::int64_t>(v.size() * sizeof(T));
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
    bytes += HeapBytes(t.reads) + HeapBytes(t.outputs) + HeapBytes(t.moves);
    for (const Move& m : t.moves) bytes += HeapBytes(m.copy.dims) + HeapBytes(m.ops);
  }
  return bytes;
}

/// Buffers of all threads, but never more than the budget leaves: the executor lets a task wait rather than exceed it.
Status EstimateMemory(const Catalog& source, const Catalog& target, const PlanOptions& options, Plan& plan) {
  std::int64_t largest = 0;
  for (const Task& t : plan.tasks) largest = std::max(largest, t.buffer_bytes);
  plan.task_bytes = std::max(plan.task_bytes, largest);
  const std::int64_t tables = CatalogBytes(source) + CatalogBytes(target) + TaskListBytes(plan.tasks);
  const std::int64_t least = tables + largest;
  if (least > options.memory) {
    return MakeError(ErrorCode::kUsage, "the memory is too small for the tables of the plan and one task")
        .WithExpected(fmt::format("at least {} bytes", least))
        .WithFound(fmt::format("{} bytes", options.memory))
        .WithHint(fmt::format("pass `--memory {}MiB`", CeilDiv(least, kMiB)));
  }
  const std::int64_t wanted = CheckedMul(largest, std::max(options.threads, 1)).value_or(options.memory);
  plan.peak_memory = tables + std::min(wanted, options.memory - tables);
  return OkStatus();
}

}  // namespace

Result<Plan> MakePlan(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs,
                      const PlanOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInputs(source, target, exprs));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<Job> jobs, MakeJobs(target, exprs));
  Plan plan;
  plan.task_bytes = options.task_bytes > 0 ? options.task_bytes : TaskBytes(options.memory);
  plan.hash = PlanHash(source, target, exprs, plan.task_bytes, options.contiguous_outputs);
  TaskBuilder builder(source, target);
  const TileLimits limits{plan.task_bytes, options.memory, options.contiguous_outputs};
  std::vector<Task> tasks;
  for (const Job& job : jobs) CROSSDOCK_RETURN_IF_ERROR(CutJob(job, target, limits, builder, tasks));
  plan.tasks = JoinSmall(InSourceOrder(std::move(tasks), source), std::min(kJoinLimit, plan.task_bytes));
  for (const Task& t : plan.tasks) {
    for (const Read& r : t.reads) plan.bytes_read += r.bytes;
    for (const Output& o : t.outputs) plan.bytes_written += o.bytes;
  }
  CROSSDOCK_RETURN_IF_ERROR(EstimateMemory(source, target, options, plan));
  return plan;
}

}  // namespace crossdock::plan
