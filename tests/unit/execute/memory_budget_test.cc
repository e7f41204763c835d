// SPDX-License-Identifier: Apache-2.0
#include "execute/memory_budget.h"

#include <atomic>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "result_matchers.h"

namespace crossdock::execute {
namespace {

using ::testing::HasSubstr;
constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
const std::function<bool()> kNever = [] { return false; };

TEST(BufferPool, GivesAlignedMemoryAndTakesItBack) {
  BufferPool pool(64 * kMiB);
  const std::byte* first = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const auto lease, pool.Take(3 * kMiB, kNever));
    first = lease.data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 4096, 0U);
  }
  ASSERT_OK_AND_ASSIGN(const auto again, pool.Take(4 * kMiB, kNever));
  EXPECT_EQ(again.data(), first) << "recycled";
  EXPECT_EQ(pool.peak_bytes(), 4 * kMiB);
}

TEST(BufferPool, RefusesWhatCanNeverFit) {
  BufferPool pool(kMiB);
  EXPECT_THAT(pool.Take(kMiB + 1, kNever), IsError(ErrorCode::kUsage, HasSubstr("--memory 2MiB")));
  EXPECT_THAT(pool.Take(kMiB, kNever), IsOk());
}

TEST(BufferPool, GivesFreeBuffersUpForALargerOne) {
  BufferPool pool(8 * kMiB);
  {
    ASSERT_OK_AND_ASSIGN(const auto small, pool.Take(2 * kMiB, kNever));
  }
  ASSERT_OK_AND_ASSIGN(const auto large, pool.Take(7 * kMiB, kNever));
  std::memset(large.data(), 1, static_cast<std::size_t>(7 * kMiB));
  EXPECT_LE(pool.peak_bytes(), 8 * kMiB);
}

TEST(BufferPool, NeverExceedsItsBudgetAndStarvesNobody) {
  BufferPool pool(8 * kMiB);
  std::atomic<std::int64_t> on_loan = 0;
  std::atomic<std::int64_t> most = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::int64_t bytes = (t == 0 ? 8 : 1) * kMiB;
        const auto lease = pool.Take(bytes, kNever);
        ASSERT_THAT(lease, IsOk());
        const std::int64_t now = on_loan += bytes;
        for (std::int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
        lease->data()[bytes - 1] = std::byte{1};
        on_loan -= bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most.load(), 8 * kMiB);
  EXPECT_LE(pool.peak_bytes(), 8 * kMiB);
}

TEST(BufferPool, WaitingEndsWhenStopped) {
  BufferPool pool(kMiB);
  ASSERT_OK_AND_ASSIGN(const auto held, pool.Take(kMiB, kNever));
  EXPECT_THAT(pool.Take(kMiB, [] { return true; }), IsError(ErrorCode::kCancelled, HasSubstr("interrupted")));
}

}  // namespace
}  // namespace crossdock::execute
