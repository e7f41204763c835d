// SPDX-License-Identifier: Apache-2.0
#include "execute/task_queue.h"

namespace crossdock::execute {

TaskQueue::TaskQueue(const plan::Plan& plan, const Catalog& target, const std::vector<bool>& done, bool in_order)
    : plan_(plan), target_(target), in_order_(in_order), files_(target.files.size() + 1) {
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    if (!done[i]) files_[FileOf(plan.tasks[i])].tasks.push_back(static_cast<std::int64_t>(i));
  }
  for (std::size_t file = 0; file < files_.size(); ++file) Insert(file);
}

std::size_t TaskQueue::FileOf(const plan::Task& task) const {
  if (task.outputs.empty()) return target_.files.size();
  const plan::Output& first = task.outputs.front();
  const Entry& entry = target_.entries[static_cast<std::size_t>(first.entry)];
  return static_cast<std::size_t>(entry.chunks[static_cast<std::size_t>(first.chunk)].file);
}

void TaskQueue::Insert(std::size_t file) {
  const File& f = files_[file];
  if (f.next < f.tasks.size()) (f.writers == 0 ? idle_ : busy_).insert({f.tasks[f.next], file});
}

std::optional<std::int64_t> TaskQueue::Take() {
  const std::lock_guard lock(mutex_);
  const bool busy = idle_.empty() || (in_order_ && !busy_.empty() && *busy_.begin() < *idle_.begin());
  std::set<Head>& heads = busy ? busy_ : idle_;
  if (heads.empty()) return std::nullopt;
  const auto [task, file] = *heads.begin();
  heads.erase(heads.begin());
  ++files_[file].next;
  ++files_[file].writers;
  Insert(file);
  return task;
}

void TaskQueue::Finish(std::int64_t task) {
  const std::lock_guard lock(mutex_);
  const std::size_t file = FileOf(plan_.tasks[static_cast<std::size_t>(task)]);
  File& f = files_[file];
  if (--f.writers != 0) return;
  if (f.next < f.tasks.size()) busy_.erase({f.tasks[f.next], file});
  Insert(file);
}

}  // namespace crossdock::execute
