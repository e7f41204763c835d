// SPDX-License-Identifier: Apache-2.0
#include "execute/progress.h"

namespace crossdock::execute {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

void ProgressMeter::Add(std::int64_t bytes, const std::string& name) {
  done_ += bytes;
  if (!callback_) return;
  // Whoever finds the meter busy goes on with its work: the next one tells more.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  callback_({done_.load(), total_, name});
}

void ProgressMeter::Tell(const std::string& name) {
  if (!callback_) return;
  const std::lock_guard lock(mutex_);
  callback_({done_.load(), total_, name});
}

}  // namespace crossdock::execute
