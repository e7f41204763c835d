// SPDX-License-Identifier: Apache-2.0
#include "io/memory_storage.h"

#include <gtest/gtest.h>

#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(MemoryStorage, ForgetsWhatWasNotSynced) {
  MemoryStorage memory;
  memory.StartRecord();
  ASSERT_OK_AND_ASSIGN(const auto file, memory.Create("/a"));  // 1
  ASSERT_THAT(file->WriteAt(0, Bytes("one")), IsOk());         // 2
  ASSERT_THAT(file->Sync(), IsOk());                           // 3
  ASSERT_THAT(memory.SyncDir("/"), IsOk());                    // 4
  ASSERT_THAT(file->WriteAt(0, Bytes("two")), IsOk());         // 5
  ASSERT_EQ(memory.record_size(), 5U);
  EXPECT_EQ(memory.AfterCrash(2, Unsynced::kLost)->Files("/"), Files{});
  EXPECT_EQ(memory.AfterCrash(2, Unsynced::kKept)->Files("/"), (Files{{"a", "one"}}));
  EXPECT_EQ(memory.AfterCrash(3, Unsynced::kLost)->Files("/"), Files{}) << "the name was not synced";
  EXPECT_EQ(memory.AfterCrash(4, Unsynced::kLost)->Files("/"), (Files{{"a", "one"}}));
  EXPECT_EQ(memory.AfterCrash(5, Unsynced::kLost)->Files("/"), (Files{{"a", "one"}}));
  EXPECT_EQ(memory.AfterCrash(5, Unsynced::kKept)->Files("/"), (Files{{"a", "two"}}));
  EXPECT_EQ(memory.Describe(4), "write /a: 3 bytes at 0");
}

TEST(MemoryStorage, ANameMayBeDurableBeforeTheContent) {
  MemoryStorage memory;
  memory.StartRecord();
  ASSERT_OK_AND_ASSIGN(const auto file, memory.Create("/a"));
  ASSERT_THAT(file->WriteAt(0, Bytes("one")), IsOk());
  ASSERT_THAT(memory.SyncDir("/"), IsOk());
  EXPECT_EQ(memory.AfterCrash(3, Unsynced::kLost)->Files("/"), (Files{{"a", ""}}));
}

TEST(MemoryStorage, SomeIsDecidedByTheSeedAlone) {
  MemoryStorage memory;
  memory.StartRecord();
  ASSERT_OK_AND_ASSIGN(const auto file, memory.Create("/a"));
  ASSERT_THAT(memory.SyncDir("/"), IsOk());
  for (int i = 0; i < 16; ++i) ASSERT_THAT(file->WriteAt(i, Bytes("x")), IsOk());
  const std::size_t all = memory.record_size();
  const Files first = memory.AfterCrash(all, Unsynced::kSome, 1)->Files("/");
  EXPECT_EQ(first, memory.AfterCrash(all, Unsynced::kSome, 1)->Files("/"));
  EXPECT_NE(first, memory.AfterCrash(all, Unsynced::kSome, 2)->Files("/"));
}

TEST(MemoryStorage, HasACapacity) {
  MemoryStorage memory;
  memory.SetCapacity(10);
  ASSERT_THAT(WriteSmallFile(memory, "/a", "12345"), IsOk());
  EXPECT_THAT(WriteSmallFile(memory, "/b", "123456"), IsError(ErrorCode::kNoSpace, HasSubstr("/b")));
  ASSERT_OK_AND_ASSIGN(const Capabilities can, memory.Probe("/"));
  EXPECT_EQ(can.free_bytes, 5);
}

}  // namespace
}  // namespace crossdock::io
