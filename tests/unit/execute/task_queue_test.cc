// SPDX-License-Identifier: Apache-2.0
#include "execute/task_queue.h"

#include <gmock/gmock.h>

namespace crossdock::execute {
namespace {

using ::testing::ElementsAre;

/// A target of one entry whose chunk c lies in file `files[c]`, and a task a chunk.
struct QueueJob {
  explicit QueueJob(const std::vector<std::int32_t>& files) {
    Entry entry;
    std::int32_t most = -1;
    for (const std::int32_t file : files) {
      most = std::max(most, file);
      Chunk chunk;
      chunk.file = file;
      plan::Task task;
      task.outputs.push_back({0, static_cast<std::int32_t>(entry.chunks.size()), {}, 0, 0});
      entry.chunks.push_back(chunk);
      plan.tasks.push_back(task);
    }
    target.entries.push_back(entry);
    target.files.resize(static_cast<std::size_t>(most + 1));
    done.resize(files.size(), false);
  }
  plan::Plan plan;
  Catalog target;
  std::vector<bool> done;
};

TEST(TaskQueue, GivesOneWorkerTheOrderOfThePlan) {
  QueueJob job({0, 1, 0, 2, 1, 0});
  job.plan.tasks.emplace_back();  // writes nothing
  job.done = {false, true, false, false, false, false, false};
  TaskQueue queue(job.plan, job.target, job.done);
  std::vector<std::int64_t> order;
  while (const auto task = queue.Take()) {
    order.push_back(*task);
    queue.Finish(*task);
  }
  EXPECT_THAT(order, ElementsAre(0, 2, 3, 4, 5, 6));
}

TEST(TaskQueue, KeepsTheOrderOfThePlanWherePlacesFollowFromIt) {
  QueueJob job({0, 0, 1, 0, 2, 1});
  TaskQueue queue(job.plan, job.target, job.done, true);
  for (const std::int64_t task : {0, 1, 2, 3}) EXPECT_EQ(queue.Take(), task);
  queue.Finish(2);
  EXPECT_EQ(queue.Take(), 4);
  EXPECT_EQ(queue.Take(), 5);
  EXPECT_EQ(queue.Take(), std::nullopt);
}

TEST(TaskQueue, PrefersFilesThatNobodyWrites) {
  QueueJob job({0, 0, 0, 1, 1, 2});
  TaskQueue queue(job.plan, job.target, job.done);
  EXPECT_EQ(queue.Take(), 0);
  EXPECT_EQ(queue.Take(), 3);
  EXPECT_EQ(queue.Take(), 5);
  EXPECT_EQ(queue.Take(), 1) << "all are busy: the order of the plan";
  queue.Finish(3);
  EXPECT_EQ(queue.Take(), 4);
  queue.Finish(0);  // task 1 of that file goes on
  queue.Finish(1);
  EXPECT_EQ(queue.Take(), 2);
  EXPECT_EQ(queue.Take(), std::nullopt);
}

}  // namespace
}  // namespace crossdock::execute
