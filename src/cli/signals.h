// SPDX-License-Identifier: Apache-2.0
/// \file  Signals as events: SIGINT and SIGTERM stop the work, a second one ends the process; SIGUSR1 asks for progress.
/// The signals are blocked and one thread waits for them: no handler, so no global state, and the callbacks may do
/// anything. (It is the one thread outside execute/, and touches no data.)
/// A stopped run leaves its staging directory for --resume, and the process exits with 5.
#pragma once

#include <csignal>
#include <functional>
#include <stop_token>
#include <thread>

namespace crossdock::cli {

class SignalWatch {
 public:
  /// REQUIRES: no other thread runs yet, so that all inherit the blocked signals.
  explicit SignalWatch(std::function<void()> on_usr1);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  void Wait(const std::stop_token& end);
  sigset_t signals_{};
  std::function<void()> on_usr1_;
  std::stop_source stop_;
  std::jthread thread_;
};

}  // namespace crossdock::cli
