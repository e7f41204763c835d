// SPDX-License-Identifier: Apache-2.0
/// \file  BufferPool: the memory bound of a run. Buffers of all workers together never exceed the budget; a worker
/// whose task does not fit waits, in the order of asking, so that a large task is not starved by small ones.
/// Buffers are page-aligned, recycled in a few sizes and touched only as tasks use them, for touching fresh memory
/// costs more than anything the engine does with it.
/// Invariants: peak_bytes() <= the budget; nothing is allocated for one tensor.
/// Errors: kUsage for a request beyond the whole budget, kCancelled when stopped while waiting.
/// Threads: all members may be called from any thread; a Lease belongs to one. The pool outlives its leases.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "crossdock/result.h"

namespace crossdock::execute {

/// Page-aligned memory, not yet touched.
class Buffer {
 public:
  Buffer() = default;
  [[nodiscard]] static Result<Buffer> Allocate(std::int64_t bytes);
  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t size_ = 0;
};

class BufferPool {
 public:
  /// A buffer on loan; it goes back when the lease dies.
  class Lease {
   public:
    Lease() = default;
    Lease(BufferPool& pool, Buffer buffer) : pool_(&pool), buffer_(std::move(buffer)) {}
    Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(buffer_, other.buffer_);
      return *this;
    }
    ~Lease() {
      if (pool_ != nullptr) pool_->Return(std::move(buffer_));
    }
    [[nodiscard]] std::byte* data() const { return buffer_.data(); }
    [[nodiscard]] std::int64_t size() const { return buffer_.size(); }

   private:
    BufferPool* pool_ = nullptr;
    Buffer buffer_;
  };

  /// How much of a budget Take(bytes) uses: sizes are few, so that buffers fit many tasks.
  [[nodiscard]] static std::int64_t LeaseSize(std::int64_t bytes, std::int64_t budget);
  explicit BufferPool(std::int64_t budget) : budget_(budget) {}
  /// At least `bytes`; waits while the budget is used up.
  [[nodiscard]] Result<Lease> Take(std::int64_t bytes, const std::function<bool()>& stopped);
  /// The size of what TryTake gives: `bytes` rounded up to pages.
  [[nodiscard]] static std::int64_t ExactSize(std::int64_t bytes);
  /// A buffer of ExactSize(bytes), when the budget has room for it now; never waits.
  [[nodiscard]] Result<std::optional<Lease>> TryTake(std::int64_t bytes);
  [[nodiscard]] std::int64_t peak_bytes() const;

 private:
  [[nodiscard]] bool FindFree(std::int64_t bytes, Buffer& out);
  [[nodiscard]] bool MakeRoom(std::int64_t bytes);
  void Return(Buffer buffer);

  const std::int64_t budget_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Buffer> free_;
  std::int64_t allocated_ = 0;  ///< on loan and free
  std::int64_t peak_ = 0;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t serving_ = 0;
};

}  // namespace crossdock::execute
