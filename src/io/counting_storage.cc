// SPDX-License-Identifier: Apache-2.0
#include "io/counting_storage.h"

namespace crossdock::io {

CountingStorage::Count CountingStorage::Of(Call call) const {
  const std::lock_guard lock(mutex_);
  return all_[static_cast<std::size_t>(call)];
}

CountingStorage::Count CountingStorage::Of(Call call, const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? Count{} : found->second[static_cast<std::size_t>(call)];
}

void CountingStorage::Reset() {
  const std::lock_guard lock(mutex_);
  all_ = {};
  by_path_.clear();
}

CallObserver::Verdict CountingStorage::OnCall(const CallInfo& info) {
  const std::lock_guard lock(mutex_);
  for (Count* count :
       {&all_[static_cast<std::size_t>(info.call)], &by_path_[info.path][static_cast<std::size_t>(info.call)]}) {
    ++count->calls;
    count->bytes += info.length;
  }
  return {};
}

}  // namespace crossdock::io
