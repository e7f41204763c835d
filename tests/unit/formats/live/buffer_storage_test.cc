// SPDX-License-Identifier: Apache-2.0
#include "formats/live/buffer_storage.h"

#include <array>
#include <cstring>
#include <vector>

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::live {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

/// A buffer with guards on both sides.
struct Guarded {
  std::vector<std::byte> memory = std::vector<std::byte>(48, std::byte{0xEE});
  [[nodiscard]] std::span<std::byte> middle() { return std::span(memory).subspan(16, 16); }
  [[nodiscard]] bool guards_whole() const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if ((i < 16 || i >= 32) && memory[i] != std::byte{0xEE}) return false;
    }
    return true;
  }
};

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(BufferStorage, WritesAndReadsWhereTheCallerSays) {
  Guarded guarded;
  BufferStorage storage("live");
  ASSERT_THAT(storage.Add("a#model/w", guarded.middle()), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto file, storage.Create("live/a#model/w"));
  ASSERT_THAT(file->Preallocate(16), IsOk());
  ASSERT_THAT(file->WriteAt(3, Bytes("crossdock")), IsOk());
  EXPECT_EQ(std::memcmp(guarded.middle().data() + 3, "crossdock", 9), 0);
  ASSERT_OK_AND_ASSIGN(const auto read, storage.OpenRead("live/a#model/w"));
  std::array<std::byte, 9> out{};
  ASSERT_THAT(read->ReadAt(3, out), IsOk());
  EXPECT_EQ(std::memcmp(out.data(), "crossdock", 9), 0);
  ASSERT_OK_AND_ASSIGN(const io::FileInfo info, read->Info());
  EXPECT_EQ(info.size, 16);
  EXPECT_TRUE(guarded.guards_whole());
}

TEST(BufferStorage, TouchesNothingOutsideABuffer) {
  Guarded guarded;
  BufferStorage storage("live");
  ASSERT_THAT(storage.Add("w", guarded.middle()), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto file, storage.OpenWrite("live/w"));
  ASSERT_OK_AND_ASSIGN(const auto read, storage.OpenRead("live/w"));
  const std::vector<std::byte> much(17, std::byte{1});
  std::vector<std::byte> out(17);
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const auto& [offset, length] : {std::pair<std::int64_t, std::size_t>{0, 17}, {1, 16}, {16, 1}, {-1, 1}, {kHuge, 1}, {kHuge - 3, 8}}) {
    EXPECT_THAT(file->WriteAt(offset, std::span(much).first(length)), IsError(ErrorCode::kUsage, HasSubstr("beyond a buffer"))) << offset;
    EXPECT_THAT(read->ReadAt(offset, std::span(out).first(length)), IsError(ErrorCode::kUsage, HasSubstr("beyond a buffer"))) << offset;
    EXPECT_FALSE(file->CopyFrom(*read, 0, offset, static_cast<std::int64_t>(length))) << offset;
  }
  EXPECT_THAT(guarded.memory, Each(std::byte{0xEE}));
  EXPECT_THAT(out, Each(std::byte{0}));
}

TEST(BufferStorage, ReadsFromAnotherStorageIntoPlace) {
  io::MemoryStorage disk;
  ASSERT_THAT(io::WriteSmallFile(disk, "/f", "0123456789"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto source, disk.OpenRead("/f"));
  Guarded guarded;
  BufferStorage storage("live");
  ASSERT_THAT(storage.Add("w", guarded.middle()), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto file, storage.OpenWrite("live/w"));
  EXPECT_TRUE(file->CopyFrom(*source, 4, 10, 6));
  EXPECT_EQ(std::memcmp(guarded.middle().data() + 10, "456789", 6), 0);
  EXPECT_FALSE(file->CopyFrom(*source, 8, 0, 6)) << "beyond the source's end";
  EXPECT_TRUE(guarded.guards_whole());
}

TEST(BufferStorage, RefusesWhatBuffersAreNot) {
  std::vector<std::byte> memory(8);
  BufferStorage storage("live");
  ASSERT_THAT(storage.Add("w", memory), IsOk());
  EXPECT_THAT(storage.Add("w", memory), IsError(ErrorCode::kUsage, HasSubstr("two buffers")));
  ASSERT_THAT(storage.AddReadOnly("r", memory), IsOk());
  EXPECT_THAT(storage.OpenWrite("live/r"), IsError(ErrorCode::kUsage, HasSubstr("only be read")));
  EXPECT_THAT(storage.OpenRead("live/other"), IsError(ErrorCode::kIncomplete, HasSubstr("no buffer of this name")));
  EXPECT_THAT(storage.OpenRead("w"), IsError(ErrorCode::kIncomplete, HasSubstr("no buffer of this name")));
  ASSERT_OK_AND_ASSIGN(const auto file, storage.OpenWrite("live/w"));
  EXPECT_THAT(file->Truncate(9), IsError(ErrorCode::kUsage, HasSubstr("another size")));
}

TEST(BufferStorage, KeepsOtherFilesWhereItIsTold) {
  io::MemoryStorage disk;
  BufferStorage storage("live");
  EXPECT_THAT(storage.Create("live/.scratch"), IsError(ErrorCode::kIncomplete, HasSubstr("no buffer")));
  storage.KeepOthersIn(disk, "/tmp/load");
  ASSERT_THAT(io::WriteSmallFile(storage, "live/.scratch", "abc"), IsOk());
  EXPECT_EQ(disk.Files("/tmp/load").at(".scratch"), "abc");
  ASSERT_THAT(storage.RemoveFile("live/.scratch"), IsOk());
  EXPECT_TRUE(disk.Files("/tmp/load").empty());
}

}  // namespace
}  // namespace crossdock::formats::live
