// SPDX-License-Identifier: Apache-2.0
#include "execute/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/checked_math.h"

namespace crossdock::execute {
namespace {

constexpr std::int64_t kPage = 4096;

}  // namespace

Result<MemoryBudget> MemoryBudget::For(const plan::Plan& plan, int threads, std::int64_t memory) {
  MemoryBudget budget;
  for (const plan::Task& task : plan.tasks) budget.buffer_bytes = std::max(budget.buffer_bytes, task.buffer_bytes);
  // The slices are a fixed small cost of a worker; only what grows with the plan is held against the bound.
  if (budget.buffer_bytes > memory) {
    return MakeError(ErrorCode::kUsage, "the memory bound is too small for the largest piece of work")
        .WithExpected(fmt::format("at least {} bytes", budget.buffer_bytes))
        .WithFound(fmt::format("{} bytes", memory))
        .WithHint(fmt::format("use --memory {}MiB or more", CeilDiv(budget.buffer_bytes, 1 << 20)));
  }
  const std::int64_t fitting = budget.buffer_bytes == 0 ? threads : memory / budget.buffer_bytes;
  const auto tasks = static_cast<std::int64_t>(plan.tasks.size());
  budget.workers = static_cast<int>(std::clamp<std::int64_t>(std::min(fitting, tasks), 1, std::max(threads, 1)));
  return budget;
}

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

Result<Buffer> Buffer::Allocate(std::int64_t bytes) {
  Buffer buffer;
  const std::int64_t rounded = RoundUp(std::max(bytes, kPage), kPage);
  buffer.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<std::size_t>(rounded))));
  if (buffer.memory_ == nullptr) {
    return MakeError(ErrorCode::kIo, fmt::format("the system gives no {} bytes of memory", rounded))
        .WithHint("use a smaller --memory or fewer --threads");
  }
  return buffer;
}

}  // namespace crossdock::execute
