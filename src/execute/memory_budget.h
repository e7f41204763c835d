// SPDX-License-Identifier: Apache-2.0
/// \file  The memory bound of a run, kept by construction: one buffer a worker, each as large as the largest task,
/// and as many workers as fit. Buffers are reserved once and recycled for every task, for touching fresh memory
/// costs more than anything the engine does with it; pages that no task uses are never touched.
/// Errors: kUsage when not even one worker fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "crossdock/result.h"
#include "plan/plan.h"

namespace crossdock::execute {

/// Bytes that a worker holds beside the buffer of its task: a slice to stream through and a scratch to read gaps.
inline constexpr std::int64_t kSliceBytes = std::int64_t{1} << 20U;
inline constexpr std::int64_t kWorkerExtraBytes = 2 * kSliceBytes;

struct MemoryBudget {
  int workers = 1;
  std::int64_t buffer_bytes = 0;   ///< of each worker

  /// The most workers, up to `threads`, whose buffers fit in `memory` together.
  [[nodiscard]] static Result<MemoryBudget> For(const plan::Plan& plan, int threads, std::int64_t memory);
};

/// Page-aligned memory, not yet touched.
class Buffer {
 public:
  [[nodiscard]] static Result<Buffer> Allocate(std::int64_t bytes);
  [[nodiscard]] std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace crossdock::execute
