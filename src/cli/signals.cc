// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <pthread.h>
#include <unistd.h>

#include "crossdock/error.h"

namespace crossdock::cli {

SignalWatch::SignalWatch(std::function<void()> on_usr1) : on_usr1_(std::move(on_usr1)) {
  sigemptyset(&signals_);
  for (int s : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals_, s);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  // A reader of our output that goes away shall not end a conversion half way.
  std::signal(SIGPIPE, SIG_IGN);
  thread_ = std::jthread([this](const std::stop_token& end) { Wait(end); });
}

SignalWatch::~SignalWatch() {
  thread_.request_stop();
  // Wakes the waiting thread; with the stop requested it does nothing else.
  pthread_kill(thread_.native_handle(), SIGUSR1);
}

void SignalWatch::Wait(const std::stop_token& end) {
  while (!end.stop_requested()) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0 || end.stop_requested()) continue;
    if (signal == SIGUSR1) {
      on_usr1_();
    } else if (!stop_.request_stop()) {
      _exit(ExitStatus(ErrorCode::kCancelled));  // the second one: at once, staging stays for --resume
    }
  }
}

}  // namespace crossdock::cli
