// SPDX-License-Identifier: Apache-2.0
#include "io/counting_storage.h"

#include <gtest/gtest.h>

#include "io/faulty_storage.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::HasSubstr;

TEST(CountingStorage, CountsCallsAndBytesByFile) {
  MemoryStorage memory;
  CountingStorage counting(memory);
  ASSERT_THAT(WriteSmallFile(counting, "/a", "12345"), IsOk());
  ASSERT_THAT(WriteSmallFile(counting, "/b", "1"), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadSmallFile(counting, "/a"));
  EXPECT_EQ(counting.Of(Call::kCreate).calls, 2);
  EXPECT_EQ(counting.Of(Call::kWrite).bytes, 6);
  EXPECT_EQ(counting.Of(Call::kWrite, "/a").bytes, 5);
  EXPECT_EQ(counting.Of(Call::kRead, "/a").bytes, 5);
  EXPECT_EQ(counting.Of(Call::kRead, "/b").calls, 0);
  counting.Reset();
  EXPECT_EQ(counting.Of(Call::kCreate).calls, 0);
}

TEST(FaultyStorage, FailsOneCall) {
  MemoryStorage memory;
  Fault fault;
  fault.at_call = 2;  // create, write, sync
  FaultyStorage faulty(memory, fault);
  EXPECT_THAT(WriteSmallFile(faulty, "/a", "12345"), IsError(ErrorCode::kIo, HasSubstr("/a")));
  EXPECT_TRUE(faulty.hit());
  EXPECT_THAT(ReadSmallFile(faulty, "/a"), IsOk());
}

TEST(FaultyStorage, HalfOfAWriteMayArrive) {
  MemoryStorage memory;
  Fault fault;
  fault.at_call = 2;
  fault.half_written = true;
  FaultyStorage faulty(memory, fault);
  EXPECT_THAT(WriteSmallFile(faulty, "/a", "1234"), IsError(ErrorCode::kIo, HasSubstr("")));
  EXPECT_EQ(memory.Files("/").at("a"), "12");
}

TEST(FaultyStorage, AFullDiskStaysFullAndLetsFilesGo) {
  MemoryStorage memory;
  ASSERT_THAT(WriteSmallFile(memory, "/old", "x"), IsOk());
  Fault fault;
  fault.at_call = 1;
  fault.stays = true;
  fault.code = ErrorCode::kNoSpace;
  FaultyStorage faulty(memory, fault);
  EXPECT_THAT(WriteSmallFile(faulty, "/a", "1"), IsError(ErrorCode::kNoSpace, HasSubstr("No space")));
  EXPECT_THAT(WriteSmallFile(faulty, "/b", "1"), IsError(ErrorCode::kNoSpace, HasSubstr("No space")));
  EXPECT_THAT(faulty.RemoveFile("/old"), IsOk());
}

}  // namespace
}  // namespace crossdock::io
