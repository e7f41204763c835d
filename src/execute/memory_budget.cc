// SPDX-License-Identifier: Apache-2.0
#include "execute/memory_budget.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

#include "base/checked_math.h"

namespace crossdock::execute {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kSmallest = std::int64_t{1} << 20U;

}  // namespace

/// A power of two, where the budget has it.
std::int64_t BufferPool::LeaseSize(std::int64_t bytes, std::int64_t budget) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(bytes, kSmallest))));
  return power <= budget / 2 ? power : RoundUp(std::max(bytes, kPage), kPage);
}

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

Result<Buffer> Buffer::Allocate(std::int64_t bytes) {
  Buffer buffer;
  buffer.size_ = RoundUp(std::max(bytes, kPage), kPage);
  buffer.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<std::size_t>(buffer.size_))));
  if (buffer.memory_ == nullptr) {
    return MakeError(ErrorCode::kIo, fmt::format("the system gives no {} bytes of memory", buffer.size_))
        .WithHint("use a smaller --memory or fewer --threads");
  }
  return buffer;
}

Result<BufferPool::Lease> BufferPool::Take(std::int64_t bytes, const std::function<bool()>& stopped) {
  const std::int64_t size = LeaseSize(bytes, budget_);
  if (size > RoundUp(budget_, kPage)) {
    return MakeError(ErrorCode::kUsage, "the memory bound is too small for the largest piece of work")
        .WithExpected(fmt::format("at least {} bytes", bytes))
        .WithFound(fmt::format("{} bytes", budget_))
        .WithHint(fmt::format("use --memory {}MiB or more", CeilDiv(bytes, 1 << 20)));
  }
  std::unique_lock lock(mutex_);
  const std::uint64_t ticket = next_ticket_++;
  Buffer buffer;
  bool found = false;
  while (serving_ != ticket || (!(found = FindFree(size, buffer)) && !MakeRoom(size))) {
    // The stop flag has no part in this condition variable, so it is looked at now and then.
    changed_.wait_for(lock, std::chrono::milliseconds(50));
    if (stopped()) return MakeError(ErrorCode::kCancelled, "interrupted");
  }
  ++serving_;
  changed_.notify_all();
  if (found) return Lease(*this, std::move(buffer));
  allocated_ += size;
  peak_ = std::max(peak_, allocated_);
  lock.unlock();
  CROSSDOCK_ASSIGN_OR_RETURN(buffer, Buffer::Allocate(size));
  return Lease(*this, std::move(buffer));
}

std::int64_t BufferPool::ExactSize(std::int64_t bytes) { return RoundUp(std::max(bytes, kPage), kPage); }

Result<std::optional<BufferPool::Lease>> BufferPool::TryTake(std::int64_t bytes) {
  const std::int64_t size = ExactSize(bytes);
  std::unique_lock lock(mutex_);
  const auto same = std::find_if(free_.begin(), free_.end(), [&](const Buffer& b) { return b.size() == size; });
  if (same != free_.end()) {
    Buffer buffer = std::move(*same);
    free_.erase(same);
    return std::optional(Lease(*this, std::move(buffer)));
  }
  if (!MakeRoom(size)) return std::optional<Lease>();
  allocated_ += size;
  peak_ = std::max(peak_, allocated_);
  lock.unlock();
  CROSSDOCK_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(size));
  return std::optional(Lease(*this, std::move(buffer)));
}

/// The smallest free buffer that is large enough. REQUIRES: the lock.
bool BufferPool::FindFree(std::int64_t bytes, Buffer& out) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->size() >= bytes && (best == free_.end() || it->size() < best->size())) best = it;
  }
  if (best == free_.end()) return false;
  out = std::move(*best);
  free_.erase(best);
  return true;
}

/// Gives free buffers of other sizes up until `bytes` more fit. REQUIRES: the lock.
bool BufferPool::MakeRoom(std::int64_t bytes) {
  const std::int64_t most = RoundUp(budget_, kPage);
  while (allocated_ + bytes > most && !free_.empty()) {
    allocated_ -= free_.back().size();
    free_.pop_back();
  }
  return allocated_ + bytes <= most;
}

void BufferPool::Return(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
  changed_.notify_all();
}

std::int64_t BufferPool::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace crossdock::execute
