// SPDX-License-Identifier: Apache-2.0
#include "execute/encoded_places.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/check.h"

namespace crossdock::execute {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);  // how often a waiting task looks whether the run was stopped

const Chunk& ChunkOf(const Catalog& target, const plan::Output& output) {
  return target.entries[static_cast<std::size_t>(output.entry)].chunks[static_cast<std::size_t>(output.chunk)];
}

}  // namespace

EncodedPlaces::EncodedPlaces(const plan::Plan& plan, const Catalog& target) : plan_(plan), target_(target) {
  std::size_t chunks = 0;
  bool any = false;
  for (const Entry& entry : target.entries) {
    first_.push_back(chunks);
    chunks += entry.chunks.size();
    any = any || std::ranges::any_of(entry.chunks, [](const Chunk& c) { return c.encoding == ChunkEncoding::kEncoded; });
  }
  if (!any) return;
  ranges_.resize(chunks);
  ends_.resize(target.files.size());
  for (const plan::Task& task : plan.tasks) {
    std::int64_t bytes = 0;
    for (const plan::Output& output : task.outputs) {
      if (IsEncoded(output)) bytes += ChunkOf(target, output).bytes.length;
    }
    largest_task_ = std::max(largest_task_, bytes);
  }
}

bool EncodedPlaces::IsEncoded(const plan::Output& output) const { return ChunkOf(target_, output).encoding == ChunkEncoding::kEncoded; }

std::size_t EncodedPlaces::CountOf(std::int64_t task) const {
  return static_cast<std::size_t>(std::ranges::count_if(plan_.tasks[static_cast<std::size_t>(task)].outputs, [this](const plan::Output& o) { return IsEncoded(o); }));
}

Result<std::vector<ByteRange>> EncodedPlaces::Place(std::int64_t task, std::span<const std::int64_t> sizes, const std::function<bool()>& stopped) {
  std::vector<ByteRange> places;
  std::unique_lock lock(mutex_);
  while (turn_ != task) {
    if (stopped()) return MakeError(ErrorCode::kCancelled, "interrupted");
    turned_.wait_for(lock, kLook);
  }
  for (const plan::Output& output : plan_.tasks[static_cast<std::size_t>(task)].outputs) {
    if (!IsEncoded(output)) continue;
    const Chunk& chunk = ChunkOf(target_, output);
    CROSSDOCK_CHECK(places.size() < sizes.size());  // one size each
    const std::int64_t size = sizes[places.size()];
    if (size > chunk.bytes.length) {
      return MakeError(ErrorCode::kCorrupt, "an encoded chunk is larger than it can be").WithTensor(target_.entries[static_cast<std::size_t>(output.entry)].name)
          .WithExpected(fmt::format("at most {} bytes", chunk.bytes.length)).WithFound(fmt::format("{}", size));
    }
    std::int64_t& end = ends_[static_cast<std::size_t>(chunk.file)];
    const ByteRange range{end, size};
    ranges_[Index(output.entry, output.chunk)] = range;
    places.push_back(range);
    end += size;
  }
  ++turn_;
  lock.unlock();
  turned_.notify_all();
  return places;
}

ByteRange EncodedPlaces::RangeOf(std::int32_t entry, std::int32_t chunk) const { return ranges_[Index(entry, chunk)]; }

}  // namespace crossdock::execute
