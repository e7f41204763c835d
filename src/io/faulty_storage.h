// SPDX-License-Identifier: Apache-2.0
/// \file  FaultyStorage: call number N of another storage fails, for N = 1, 2, ... until none is hit.
/// Threads: as the inner storage.
#pragma once

#include <atomic>
#include <cstdint>

#include "io/observed_storage.h"

namespace crossdock::io {

struct Fault {
  std::int64_t at_call = 0;  ///< the first call is 1; 0 = never
  ErrorCode code = ErrorCode::kIo;
  bool stays = false;         ///< every later call that writes fails too, as on a full disk
  bool half_written = false;  ///< half of a failing write reaches the file
  bool writes_only = false;   ///< counts, and fails, only calls that change something
};

class FaultyStorage final : private CallObserver, public ObservedStorage {
 public:
  FaultyStorage(Storage& inner, const Fault& fault) : ObservedStorage(inner, *this), fault_(fault) {}
  [[nodiscard]] bool hit() const { return hit_.load(); }  ///< some call was failed
  [[nodiscard]] std::int64_t calls() const { return calls_.load(); }

 private:
  [[nodiscard]] Verdict OnCall(const CallInfo& info) override;
  Fault fault_;
  std::atomic<std::int64_t> calls_ = 0;
  std::atomic<bool> hit_ = false;
};

}  // namespace crossdock::io
