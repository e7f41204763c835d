// SPDX-License-Identifier: Apache-2.0
/// \file  One save of one rank, from the tensors that it took to the commit. Its steps, each ended by Agree (agree.h):
///   staging    rank 0 has made the directory and all files, and left a word there
///   measuring  every rank sees that word, and has measured the blocks that it shares with others
///   writing    every rank has written and synced its share; rank 0 seals what several of them wrote
///   commit     rank 0 has added what is no tensor, opened the result, and put it in place
/// Up to the last, an error on any rank ends the save on all of them, and rank 0 removes what was made.
/// Errors: those of convert and of Comm. Threads: one job works at a time, on the thread of its caller or on one of its own; the exporter
/// outlives its job.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "convert/export_plan.h"
#include "crossdock/comm.h"
#include "crossdock/live_save.h"
#include "formats/live/buffer_storage.h"
#include "io/overlay_storage.h"

namespace crossdock::convert {

inline constexpr auto kSeenWithin = std::chrono::seconds(30);  ///< network file systems tell late what others made

/// The run's buffers, and beside them what the reference's own files give.
class RunStorage final : public io::OverlayStorage {
 public:
  explicit RunStorage(io::Storage& files) : io::OverlayStorage(files), files_(files), buffers_(kLiveRoot) {}
  [[nodiscard]] formats::live::BufferStorage& buffers() { return buffers_; }
  [[nodiscard]] Result<std::unique_ptr<io::ReadFile>> OpenRead(const std::string& path) override {
    if (buffers_.Stat(path)) return buffers_.OpenRead(path);
    return files_.OpenRead(io::AbsolutePath(path));
  }

 private:
  io::Storage& files_;
  formats::live::BufferStorage buffers_;
};

/// What a job works with; the exporter outlives its job.
struct SaveWork {
  Comm& comm;
  io::Storage& storage;
  const ExportOptions& options;
  Hooks hooks;
  ExportPlan& plan;
  std::string common;  ///< of rank 0: Exporter::Save's
};

class SavingJob : public ExportJob {
 public:
  /// Where the buffers that the share reads are added before it runs.
  [[nodiscard]] virtual RunStorage& run() = 0;
  /// Of a snapshot.
  virtual void Copied(std::int64_t bytes) = 0;
  /// Collective. `before`: whether this rank has handed over its tensors.
  virtual void RunHere(const Status& before) = 0;
  /// On a thread that gives way to the loop, as do those that it starts.
  virtual void RunBeside(const Status& before) = 0;
};

[[nodiscard]] std::shared_ptr<SavingJob> MakeSavingJob(SaveWork work, std::int64_t step, std::string target);

}  // namespace crossdock::convert
