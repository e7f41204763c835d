// SPDX-License-Identifier: Apache-2.0
/// \file  EncodedPlaces: where encoded chunks come to lie. Their sizes are known only when they are encoded, and yet the places must be
/// the same for every number of threads and after every interruption: chunks are appended to their files in the order of the plan.
/// A task that has encoded its outputs waits here until all tasks before it have told their sizes; then it writes beside the others.
/// Protocol: tasks are taken in the order of the plan; whoever waits holds no memory of the pool; so the first that has not told its sizes
/// never waits for a later one. An interrupted run goes on behind the longest beginning of the plan that is in the journal.
/// Errors: kCancelled when stopped while waiting; kCorrupt for sizes beyond the bound. Threads: Place may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "crossdock/result.h"
#include "plan/plan.h"
#include "tensor/catalog.h"

namespace crossdock::execute {

class EncodedPlaces {
 public:
  EncodedPlaces(const plan::Plan& plan, const Catalog& target);
  /// The target has encoded chunks.
  [[nodiscard]] bool any() const { return !ranges_.empty(); }
  [[nodiscard]] bool IsEncoded(const plan::Output& output) const;
  /// How many of the task's outputs are encoded.
  [[nodiscard]] std::size_t CountOf(std::int64_t task) const;
  /// What the encoded outputs of one task take at most.
  [[nodiscard]] std::int64_t largest_task() const { return largest_task_; }
  /// The places of a task's encoded outputs, by their sizes. Every task of the plan comes here once, also one without any.
  [[nodiscard]] Result<std::vector<ByteRange>> Place(std::int64_t task, std::span<const std::int64_t> sizes, const std::function<bool()>& stopped);
  /// The end of each file so far; 0 for files without encoded chunks.
  [[nodiscard]] const std::vector<std::int64_t>& ends() const { return ends_; }
  /// The range of a chunk that was placed.
  [[nodiscard]] ByteRange RangeOf(std::int32_t entry, std::int32_t chunk) const;

 private:
  [[nodiscard]] std::size_t Index(std::int32_t entry, std::int32_t chunk) const { return first_[static_cast<std::size_t>(entry)] + static_cast<std::size_t>(chunk); }

  const plan::Plan& plan_;
  const Catalog& target_;
  std::int64_t largest_task_ = 0;
  std::vector<std::size_t> first_;   ///< of the chunks of an entry in ranges_
  std::vector<ByteRange> ranges_;    ///< empty where nothing is encoded
  std::mutex mutex_;                 ///< guards what follows, and ranges_
  std::condition_variable turned_;
  std::int64_t turn_ = 0;            ///< the task whose sizes come next
  std::vector<std::int64_t> ends_;
};

}  // namespace crossdock::execute
