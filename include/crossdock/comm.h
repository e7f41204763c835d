// SPDX-License-Identifier: Apache-2.0
/// \file  Comm: what a collective save asks of whoever connects the ranks. The caller brings it (torch.distributed, MPI); FileComm needs
/// nothing but a directory that all ranks see. The library opens no sockets and starts no processes.
/// Contract: every rank makes the same calls in the same order. A call that some rank never joins ends in an error on the others
/// within the implementation's time limit.
/// Threads: one at a time, but not always the same one (a save in the background calls from its own).
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "crossdock/result.h"

namespace crossdock {

class Comm {
 public:
  virtual ~Comm() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Everybody's bytes, by rank. Returns when all ranks have called it.
  [[nodiscard]] virtual Result<std::vector<std::string>> AllGather(const std::string& bytes) = 0;
  /// Of the calls that follow: once `stop` says so a call waits a few seconds more, so that the others learn why, and ends with
  /// kCancelled. Between calls. A connection that cannot stop waiting ignores it.
  virtual void Heed(std::stop_token stop) { (void)stop; }
};

struct FileCommOptions {
  std::string dir;               ///< made when it is not there; of this group of ranks alone
  int rank = 0;
  int size = 1;
  double timeout_seconds = 600;  ///< how long a call waits for the slowest rank; at most 10 years
};

/// Ranks that meet in a directory: messages are files that appear whole, by a rename; whoever waits looks again, ever less often.
/// The first call of all ranks agrees on a new session, so that what an earlier run left is never taken for a message. After a
/// time-out every rank gets an error, and the next call of all of them begins a new session.
/// Errors: kUsage for a rank outside the size; kIo for a directory that cannot be used, and for ranks that do not come, by number.
[[nodiscard]] Result<std::unique_ptr<Comm>> MakeFileComm(const FileCommOptions& options);

/// One rank alone.
[[nodiscard]] std::unique_ptr<Comm> MakeSoloComm();

}  // namespace crossdock
