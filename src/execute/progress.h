// SPDX-License-Identifier: Apache-2.0
/// \file  ProgressMeter: adds up what workers have written and tells it onward, rarely and one call at a time.
/// Threads: Add may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "execute/executor.h"

namespace crossdock::execute {

class ProgressMeter {
 public:
  ProgressMeter(const std::function<void(const Progress&)>& callback, std::int64_t total)
      : callback_(callback), total_(total) {}
  /// `bytes` more of the target tensor `name` are written; at most ten calls a second go out.
  void Add(std::int64_t bytes, const std::string& name);
  /// Tells the present state whatever the time is.
  void Tell(const std::string& name);
  [[nodiscard]] std::int64_t done() const { return done_.load(); }

 private:
  using Clock = std::chrono::steady_clock;
  const std::function<void(const Progress&)>& callback_;
  std::int64_t total_;
  std::atomic<std::int64_t> done_ = 0;
  std::mutex mutex_;
  Clock::time_point next_ = Clock::now();
};

}  // namespace crossdock::execute
