// SPDX-License-Identifier: Apache-2.0
/// \file  CountingStorage: counts the calls and bytes that another storage is asked for, so that tests can hold
/// the engine to "every byte read once, written once" without a clock.
/// Threads: as the inner storage; counts may be read at any time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "io/observed_storage.h"

namespace crossdock::io {

class CountingStorage final : private CallObserver, public ObservedStorage {
 public:
  struct Count {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;
  };
  explicit CountingStorage(Storage& inner) : ObservedStorage(inner, *this) {}
  [[nodiscard]] Count Of(Call call) const;
  /// Of one file, by the path it was opened with.
  [[nodiscard]] Count Of(Call call, const std::string& path) const;
  void Reset();

 private:
  [[nodiscard]] Verdict OnCall(const CallInfo& info) override;
  using Counts = std::array<Count, kCallCount>;
  mutable std::mutex mutex_;
  Counts all_{};
  std::map<std::string, Counts> by_path_;
};

}  // namespace crossdock::io
