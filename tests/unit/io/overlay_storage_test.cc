// SPDX-License-Identifier: Apache-2.0
#include "io/overlay_storage.h"

#include <array>

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::HasSubstr;

TEST(OverlayStorage, LaysFilesOverThoseThatAreThere) {
  MemoryStorage inner;
  ASSERT_THAT(MakeDirs(inner, "/m"), IsOk());
  ASSERT_THAT(WriteSmallFile(inner, "/m/config.json", "{}"), IsOk());
  OverlayStorage over(inner);
  over.Add("/m/b.safetensors", "head", 1'000'000'000'000);
  ASSERT_OK_AND_ASSIGN(const FileInfo info, over.Stat("/m/b.safetensors"));
  EXPECT_EQ(info.size, 1'000'000'000'000);
  EXPECT_EQ(info.kind, FileKind::kFile);
  EXPECT_FALSE(Exists(inner, "/m/b.safetensors"));
  EXPECT_TRUE(Exists(over, "/m/config.json"));
  ASSERT_OK_AND_ASSIGN(const std::vector<DirEntry> entries, over.List("/m"));
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "b.safetensors");
  EXPECT_EQ(entries[1].name, "config.json");
}

TEST(OverlayStorage, ReadsWhatIsKnownAndRefusesTheRest) {
  MemoryStorage inner;
  OverlayStorage over(inner);
  over.Add("/f", "head", 100);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ReadFile> file, over.OpenRead("/f"));
  std::array<std::byte, 2> two{};
  ASSERT_THAT(file->ReadAt(2, two), IsOk());
  EXPECT_EQ(static_cast<char>(two[0]), 'a');
  EXPECT_EQ(static_cast<char>(two[1]), 'd');
  EXPECT_THAT(file->ReadAt(3, two), IsError(ErrorCode::kIncomplete, HasSubstr("not there yet")));
  EXPECT_THAT(file->ReadAt(-1, two), IsError(ErrorCode::kIncomplete, HasSubstr("/f")));
  EXPECT_THAT(over.OpenRead("/g"), IsError(ErrorCode::kIncomplete, HasSubstr("/g")));
}

}  // namespace
}  // namespace crossdock::io
