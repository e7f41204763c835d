// SPDX-License-Identifier: Apache-2.0
/// \file  TaskQueue: which task a worker takes next. In the order of the plan, but a task of a target file that nobody is
/// writing comes before those of files that somebody is: where each file is a slow stream of its own (network file
/// systems), as many streams as workers then run at once.
/// Where chunks are encoded, all are handed out in the order of the plan: their places follow from it (encoded_places.h).
/// Invariants: every task is handed out once; those of one file in the order of the plan; to a single worker all of them in the
/// order of the plan. A task that writes several files counts for the first of them.
/// Threads: all members may be called from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "tensor/catalog.h"

namespace crossdock::execute {

class TaskQueue {
 public:
  /// Tasks that are marked in `done` are not handed out.
  TaskQueue(const plan::Plan& plan, const Catalog& target, const std::vector<bool>& done, bool in_order = false);
  /// The next task, or nothing when all were handed out.
  [[nodiscard]] std::optional<std::int64_t> Take();
  /// The task that Take gave is finished, well or not.
  void Finish(std::int64_t task);

 private:
  using Head = std::pair<std::int64_t, std::size_t>;  ///< first waiting task of a file, the file
  struct File {
    std::vector<std::int64_t> tasks;
    std::size_t next = 0;
    int writers = 0;
  };
  [[nodiscard]] std::size_t FileOf(const plan::Task& task) const;
  /// Among the idle or the busy heads, as its writers say; REQUIRES: it is in neither.
  void Insert(std::size_t file);

  const plan::Plan& plan_;
  const Catalog& target_;
  const bool in_order_;
  std::mutex mutex_;
  std::vector<File> files_;  ///< of the target, and one for tasks that write none
  std::set<Head> idle_, busy_;
};

}  // namespace crossdock::execute
