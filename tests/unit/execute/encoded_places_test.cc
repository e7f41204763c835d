// SPDX-License-Identifier: Apache-2.0
#include "execute/encoded_places.h"

#include <thread>

#include "result_matchers.h"

namespace crossdock::execute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Five chunks in two files; task t writes chunk t, the last one the chunks 3 and 4.
struct PlacesJob {
  PlacesJob() {
    Entry entry;
    for (const std::int32_t file : {0, 1, 0, 1, 0}) {
      Chunk chunk;
      chunk.file = file;
      chunk.bytes = {0, 100};
      chunk.encoding = ChunkEncoding::kEncoded;
      entry.chunks.push_back(chunk);
    }
    target.entries.push_back(entry);
    target.files.resize(2);
    for (const std::vector<std::int32_t>& chunks : std::vector<std::vector<std::int32_t>>{{0}, {1}, {2}, {3, 4}}) {
      plan::Task task;
      for (const std::int32_t chunk : chunks) task.outputs.push_back({0, chunk, {}, 0, 0});
      plan.tasks.push_back(task);
    }
  }
  plan::Plan plan;
  Catalog target;
};

const auto kNever = [] { return false; };

TEST(EncodedPlaces, FollowTheOrderOfThePlanWhoeverComesFirst) {
  const PlacesJob job;
  EncodedPlaces places(job.plan, job.target);
  EXPECT_TRUE(places.any());
  EXPECT_EQ(places.CountOf(3), 2U);
  EXPECT_EQ(places.largest_task(), 200);
  const std::vector<std::vector<std::int64_t>> sizes = {{10}, {20}, {30}, {40, 50}};
  {
    std::vector<std::jthread> threads;
    for (int task = 3; task >= 0; --task) {
      threads.emplace_back([&, task] { EXPECT_THAT(places.Place(task, sizes[static_cast<std::size_t>(task)], kNever), IsOk()); });
    }
  }
  EXPECT_THAT(places.ends(), ElementsAre(10 + 30 + 50, 20 + 40));
  EXPECT_EQ(places.RangeOf(0, 2), (ByteRange{10, 30}));
  EXPECT_EQ(places.RangeOf(0, 3), (ByteRange{20, 40}));
  EXPECT_EQ(places.RangeOf(0, 4), (ByteRange{40, 50}));
}

TEST(EncodedPlaces, WhoWaitsIsStopped) {
  const PlacesJob job;
  EncodedPlaces places(job.plan, job.target);
  const std::vector<std::int64_t> size = {1};
  EXPECT_THAT(places.Place(1, size, [] { return true; }), IsError(ErrorCode::kCancelled, HasSubstr("interrupted")));
}

TEST(EncodedPlaces, ASizeBeyondTheBoundIsRefused) {
  const PlacesJob job;
  EncodedPlaces places(job.plan, job.target);
  const std::vector<std::int64_t> size = {101};
  EXPECT_THAT(places.Place(0, size, kNever), IsError(ErrorCode::kCorrupt, HasSubstr("expected at most 100 bytes, found 101")));
}

TEST(EncodedPlaces, AreNoneWhereChunksAreStoredAsTheyAre) {
  PlacesJob job;
  for (Chunk& chunk : job.target.entries[0].chunks) chunk.encoding = ChunkEncoding::kRaw;
  const EncodedPlaces places(job.plan, job.target);
  EXPECT_FALSE(places.any());
  EXPECT_EQ(places.largest_task(), 0);
}

}  // namespace
}  // namespace crossdock::execute
