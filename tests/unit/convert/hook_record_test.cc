// SPDX-License-Identifier: Apache-2.0
#include "convert/hook_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;

TEST(HookRecord, KeepsHooksApartAndIsReadAgain) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/out"), IsOk());
  ASSERT_OK_AND_ASSIGN(HookRecord record, HookRecord::Read(storage, "/out"));
  EXPECT_FALSE(record.Has("a", "iter_0000010"));
  ASSERT_THAT(record.Add(storage, "a", "iter_0000010"), IsOk());
  ASSERT_THAT(record.Add(storage, "echo\t\"x\" | tee b", "iter_0000020"), IsOk());
  ASSERT_THAT(record.Add(storage, "echo a\necho \\n\n", "iter_0000020"), IsOk());
  ASSERT_OK_AND_ASSIGN(const HookRecord again, HookRecord::Read(storage, "/out"));
  EXPECT_TRUE(again.Has("a", "iter_0000010"));
  EXPECT_FALSE(again.Has("a", "iter_0000020"));
  EXPECT_TRUE(again.Has("echo\t\"x\" | tee b", "iter_0000020"));
  EXPECT_TRUE(again.Has("echo a\necho \\n\n", "iter_0000020"));
  EXPECT_FALSE(again.Has("echo a\necho \n\n", "iter_0000020"));
  EXPECT_FALSE(io::Exists(storage, "/out/.crossdock-watch.tmp"));
}

TEST(HookRecord, RefusesWhatItDidNotWrite) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/out"), IsOk());
  for (const char* text : {"no tab\n", "a\titer_10", "a\titer_10\n\n"}) {
    ASSERT_THAT(io::RemoveFileIfPresent(storage, "/out/.crossdock-watch"), IsOk());
    ASSERT_THAT(io::WriteSmallFile(storage, "/out/.crossdock-watch", text), IsOk());
    EXPECT_THAT(HookRecord::Read(storage, "/out"), IsError(ErrorCode::kCorrupt, HasSubstr("remove the file"))) << text;
  }
}

}  // namespace
}  // namespace crossdock::convert
