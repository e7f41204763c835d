// SPDX-License-Identifier: Apache-2.0
/// \file  Transfers past the page cache: the bytes are right at every alignment, whether or not the file system under
/// the temporary directory can do it; where it can, nothing of them is left in the cache.
#include "io/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "io/storage.h"
#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;
constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

std::byte ByteAt(std::int64_t offset) { return static_cast<std::byte>((offset * 2654435761U) >> 11U); }

/// Memory that begins at a page.
class Pages {
 public:
  explicit Pages(std::int64_t bytes) : memory_(static_cast<std::size_t>(bytes + DirectFile::kBlock)), size_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    start_ = memory_.data() + (DirectFile::kBlock - address % DirectFile::kBlock) % DirectFile::kBlock;
  }
  std::span<std::byte> all() const { return {start_, static_cast<std::size_t>(size_)}; }

 private:
  std::vector<std::byte> memory_;
  std::byte* start_ = nullptr;
  std::int64_t size_;
};

class DirectTransfers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "crossdock-direct-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    path_ = JoinPath(root_, "f");
  }
  void TearDown() override { fs::remove_all(root_); }

  /// True when files here can be moved past the cache; they are then expected to be.
  bool CanPass() const {
    const FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    return DirectFile(O_RDONLY).Ready(fd, path_);
  }
  std::int64_t Cached() const {
    const FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    return CachedBytes(fd, 0, 0).value_or(-1);
  }
  void MakeFile(std::int64_t size) {
    std::string text(static_cast<std::size_t>(size), '\0');
    for (std::int64_t i = 0; i < size; ++i) text[static_cast<std::size_t>(i)] = static_cast<char>(ByteAt(i));
    ASSERT_THAT(WriteSmallFile(*storage_, path_, text), IsOk());  // its sync drops the cache
  }

  std::string root_, path_;
  std::unique_ptr<Storage> storage_ = MakeLocalStorage();
};

TEST_F(DirectTransfers, ReadsTheSameBytesAtEveryOffset) {
  constexpr std::int64_t kSize = kMiB + 12345;
  MakeFile(kSize);
  ASSERT_OK_AND_ASSIGN(const auto file, storage_->OpenRead(path_));
  const Pages room(kMiB + kBlockMargin);
  std::vector<std::byte> out(kMiB);
  for (const std::int64_t offset : {0, 1, 8, 511, 512, 4095, 4096, 4104, 12345}) {
    for (const std::int64_t length : {kMiB, kMiB - 1, DirectFile::kLeast, std::int64_t{100}}) {
      const std::span<std::byte> here = std::span(out).first(static_cast<std::size_t>(length));
      ASSERT_OK_AND_ASSIGN(const auto got, file->ReadOnce(offset, here, room.all()));
      ASSERT_EQ(got.size(), here.size());
      for (std::int64_t i = 0; i < length; i += i < 5000 || i > length - 5000 ? 1 : 997) {
        ASSERT_EQ(got[static_cast<std::size_t>(i)], ByteAt(offset + i)) << offset << " + " << i;
      }
    }
  }
  EXPECT_THAT(file->ReadOnce(kSize - kMiB + 1, out, room.all()), IsError(ErrorCode::kCorrupt, HasSubstr("ends too early")));
}

TEST_F(DirectTransfers, ReadsIntoMemoryThatIsTheRoomToo) {
  MakeFile(kMiB);
  ASSERT_OK_AND_ASSIGN(const auto file, storage_->OpenRead(path_));
  const Pages room(kMiB);
  const std::size_t length = 512 << 10U;
  ASSERT_OK_AND_ASSIGN(const auto got, file->ReadOnce(777, room.all().first(length), room.all()));
  EXPECT_EQ(got.front(), ByteAt(777));
  EXPECT_EQ(got.back(), ByteAt(777 + static_cast<std::int64_t>(length) - 1));
}

TEST_F(DirectTransfers, WritesTheSameBytesAtEveryOffset) {
  const Pages memory(2 * kMiB);
  for (const std::int64_t offset : {0, 1, 512, 4095, 4096, 5000}) {
    for (const std::int64_t shift : {std::int64_t{0}, offset % DirectFile::kBlock}) {  // the latter can pass the cache
      for (const std::int64_t length : {kMiB, kMiB - 4097, std::int64_t{100}}) {
        SCOPED_TRACE(std::to_string(offset) + ", " + std::to_string(shift) + ", " + std::to_string(length));
        const std::span<std::byte> data =
            memory.all().subspan(static_cast<std::size_t>(shift), static_cast<std::size_t>(length));
        for (std::int64_t i = 0; i < length; ++i) data[static_cast<std::size_t>(i)] = ByteAt(offset + i);
        ASSERT_THAT(RemoveFileIfPresent(*storage_, path_), IsOk());
        ASSERT_OK_AND_ASSIGN(const auto file, storage_->Create(path_));
        ASSERT_THAT(file->Preallocate(2 * kMiB), IsOk());
        // Neighbours share its first and last block.
        const std::string around(static_cast<std::size_t>(offset + length + 10), 'x');
        ASSERT_THAT(file->WriteAt(0, std::as_bytes(std::span(around))), IsOk());
        ASSERT_THAT(file->WriteOnce(offset, data), IsOk());
        ASSERT_THAT(file->Sync(), IsOk());
        ASSERT_OK_AND_ASSIGN(const std::string text, ReadSmallFile(*storage_, path_));
        ASSERT_EQ(text.size(), static_cast<std::size_t>(2 * kMiB));
        EXPECT_EQ(text.find_first_not_of('x'), offset == 0 ? 0U : static_cast<std::size_t>(offset));
        EXPECT_EQ(std::memcmp(text.data() + offset, data.data(), data.size()), 0);
        EXPECT_EQ(text.substr(static_cast<std::size_t>(offset + length), 10), "xxxxxxxxxx");
      }
    }
  }
}

TEST_F(DirectTransfers, LeaveNothingInTheCache) {
  MakeFile(1);
  if (!CanPass()) GTEST_SKIP() << "no direct transfers under " << root_;
  ASSERT_THAT(storage_->RemoveFile(path_), IsOk());
  const Pages memory(kMiB + kBlockMargin);
  std::fill(memory.all().begin(), memory.all().end(), std::byte{1});
  ASSERT_OK_AND_ASSIGN(const auto file, storage_->Create(path_));
  ASSERT_THAT(file->Preallocate(4 * kMiB), IsOk());
  for (std::int64_t i = 0; i < 4; ++i) ASSERT_THAT(file->WriteOnce(i * kMiB, memory.all().first(kMiB)), IsOk());
  EXPECT_EQ(Cached(), 0) << "before any sync";
  ASSERT_OK_AND_ASSIGN(const auto reader, storage_->OpenRead(path_));
  std::vector<std::byte> out(kMiB);
  for (std::int64_t i = 0; i < 3; ++i) ASSERT_THAT(reader->ReadOnce(i * kMiB + 8, out, memory.all()), IsOk());
  EXPECT_EQ(Cached(), 0);
}

TEST_F(DirectTransfers, ReadFromTheCacheWhatLiesThere) {
  MakeFile(2 * kMiB);
  if (!CanPass()) GTEST_SKIP() << "no direct transfers under " << root_;
  ASSERT_OK_AND_ASSIGN(const auto file, storage_->OpenRead(path_));
  std::vector<std::byte> out(kMiB);
  ASSERT_THAT(file->ReadAt(0, out), IsOk());
  const Pages room(kMiB + kBlockMargin);
  ASSERT_OK_AND_ASSIGN(const auto got, file->ReadOnce(0, out, room.all()));
  EXPECT_EQ(got.data(), out.data());
  EXPECT_EQ(got[100], ByteAt(100));
}

TEST_F(DirectTransfers, AnotherFileAtThePathIsNotTaken) {
  MakeFile(kMiB);
  const FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_THAT(storage_->RemoveFile(path_), IsOk());
  MakeFile(kMiB);
  EXPECT_FALSE(DirectFile(O_RDONLY).Ready(fd, path_));
}

}  // namespace
}  // namespace crossdock::io
