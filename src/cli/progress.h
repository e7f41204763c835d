// SPDX-License-Identifier: Apache-2.0
/// \file  Progress on stderr: bytes with rate and time left, one line that is redrawn on a terminal, lines of text, or
/// lines of JSON. SIGUSR1 prints the current state in every mode.
/// Threads: Event and PrintNow may come from different threads; each call is a whole.
#pragma once

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

#include "crossdock/options.h"
#include "crossdock/result.h"

namespace crossdock::cli {

enum class ProgressMode { kOff, kLine, kPlain, kJson };

class ProgressPrinter {
 public:
  using Clock = std::chrono::steady_clock;
  /// `name` as in --progress; "auto" is a line when `terminal`, else off.
  [[nodiscard]] static Result<ProgressMode> ModeFromName(const std::string& name, bool terminal);
  ProgressPrinter(std::FILE* out, ProgressMode mode, bool verbose) : out_(out), mode_(mode), verbose_(verbose) {}
  ~ProgressPrinter() { Finish(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void Event(const ProgressEvent& event);
  void PrintNow();                        ///< at once, whatever the mode (SIGUSR1)
  void Notice(const std::string& text);   ///< a line that does not tear the progress line
  void Finish();                          ///< clears the progress line

 private:
  void Print(Clock::time_point now, ProgressMode as);
  std::FILE* out_;
  ProgressMode mode_;
  bool verbose_;
  std::mutex mutex_;
  ProgressEvent last_;
  Clock::time_point phase_start_ = Clock::now();
  Clock::time_point last_print_;
  std::int64_t phase_start_bytes_ = 0;    ///< a resumed run does not count what was there
  bool line_open_ = false;
};

/// "converting 1.2 GiB of 3.4 GiB (35 %), 512.0 MiB/s, 4 s left". Pure, for the tests.
[[nodiscard]] std::string ProgressText(const ProgressEvent& event, double seconds, std::int64_t start_bytes);
/// "1.5 GiB", "17 bytes".
[[nodiscard]] std::string HumanBytes(double bytes);

}  // namespace crossdock::cli
