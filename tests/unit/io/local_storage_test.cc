// SPDX-License-Identifier: Apache-2.0
/// \file  What only the local file system has: links, modes, special files.
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/memory_storage.h"
#include "io/storage.h"
#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class LocalStorage : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "crossdock-local-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string At(std::string_view name) const { return JoinPath(root_, name); }
  std::string root_;
  std::unique_ptr<Storage> storage_ = MakeLocalStorage();
};

TEST_F(LocalStorage, ReadsThroughLinksAndSaysSo) {
  ASSERT_THAT(WriteSmallFile(*storage_, At("blob"), "data"), IsOk());
  fs::create_symlink("blob", At("link"));
  ASSERT_OK_AND_ASSIGN(const FileInfo info, storage_->Stat(At("link")));
  EXPECT_TRUE(info.is_symlink);
  EXPECT_EQ(info.size, 4);
  ASSERT_OK_AND_ASSIGN(const std::string target, storage_->ReadLink(At("link")));
  EXPECT_EQ(target, "blob");
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadSmallFile(*storage_, At("link")));
  EXPECT_EQ(text, "data");
  ASSERT_OK_AND_ASSIGN(const auto entries, storage_->List(root_));
  EXPECT_TRUE(entries[1].is_symlink);
  EXPECT_EQ(entries[1].kind, FileKind::kFile);
}

TEST_F(LocalStorage, WritesThroughNoLink) {
  ASSERT_THAT(WriteSmallFile(*storage_, At("precious"), "data"), IsOk());
  fs::create_symlink("precious", At("link"));
  EXPECT_THAT(storage_->Create(At("link")), IsError(ErrorCode::kIo, HasSubstr("exists")));
  EXPECT_THAT(storage_->OpenWrite(At("link")), IsError(ErrorCode::kIo, HasSubstr("link")));
  EXPECT_THAT(storage_->Lock(At("link")), IsError(ErrorCode::kIo, HasSubstr("link")));
}

TEST_F(LocalStorage, ADanglingLinkIsListedAndAbsent) {
  fs::create_symlink("nowhere", At("link"));
  ASSERT_OK_AND_ASSIGN(const auto entries, storage_->List(root_));
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].kind, FileKind::kOther);
  EXPECT_THAT(storage_->Stat(At("link")), IsError(ErrorCode::kIncomplete, HasSubstr("link")));
  EXPECT_THAT(RemoveTree(*storage_, At("link")), IsOk());
  EXPECT_FALSE(fs::is_symlink(At("link")));
}

TEST_F(LocalStorage, RemoveTreeDoesNotFollowLinks) {
  ASSERT_THAT(MakeDirs(*storage_, At("precious")), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, At("precious/f"), "data"), IsOk());
  ASSERT_THAT(MakeDirs(*storage_, At("t")), IsOk());
  fs::create_directory_symlink(At("precious"), At("t/link"));
  ASSERT_THAT(RemoveTree(*storage_, At("t")), IsOk());
  EXPECT_TRUE(fs::exists(At("precious/f")));
  fs::create_directory_symlink(At("precious"), At("direct"));
  ASSERT_THAT(RemoveTree(*storage_, At("direct")), IsOk());
  EXPECT_TRUE(fs::exists(At("precious/f")));
}

/// What may be read a network file system may fill up and write back as whole pages, over what other hosts wrote.
TEST_F(LocalStorage, OpensForWritingAlone) {
  ASSERT_THAT(WriteSmallFile(*storage_, At("shared"), "data"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto file, storage_->OpenWrite(At("shared")));
  int seen = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone) != fs::canonical(At("shared"))) continue;
    ++seen;
    EXPECT_EQ(::fcntl(std::stoi(entry.path().filename().string()), F_GETFL) & O_ACCMODE, O_WRONLY);
  }
  EXPECT_EQ(seen, 1);
  ASSERT_THAT(file->WriteAt(1, std::as_bytes(std::span("AT", 2))), IsOk());
  ASSERT_THAT(file->Sync(), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadSmallFile(*storage_, At("shared")));
  EXPECT_EQ(text, "dATa");
}

TEST_F(LocalStorage, AFifoIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(At("fifo").c_str(), 0600), 0);
  EXPECT_THAT(storage_->OpenRead(At("fifo")), IsError(ErrorCode::kUnsupported, HasSubstr("regular file")));
}

TEST_F(LocalStorage, FilesHaveTheModeOfTheUmask) {
  struct Case {
    mode_t mask, file, dir;
  };
  int number = 0;
  for (const Case& c : {Case{022, 0644, 0755}, Case{027, 0640, 0750}}) {
    const std::string name = "f" + std::to_string(number++);
    const mode_t before = ::umask(c.mask);
    const auto written = WriteSmallFile(*storage_, At(name), "x");
    const auto made = storage_->MakeDir(At(name + "d"));
    ::umask(before);
    ASSERT_THAT(written, IsOk());
    ASSERT_THAT(made, IsOk());
    struct stat st{};
    ASSERT_EQ(::stat(At(name).c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777U, c.file);
    ASSERT_EQ(::stat(At(name + "d").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777U, c.dir);
  }
}

TEST_F(LocalStorage, CopiesRangesInsideTheSystem) {
  const auto storage = MakeLocalStorage(SystemCopies::kAlways);
  std::string text(300'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 % 251);
  ASSERT_THAT(WriteSmallFile(*storage, At("from"), text), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto from, storage->OpenRead(At("from")));
  ASSERT_OK_AND_ASSIGN(const auto to, storage->Create(At("to")));
  ASSERT_THAT(to->Truncate(400'000), IsOk());
  ASSERT_TRUE(to->CopyFrom(*from, 1'001, 77'777, 200'003));
  ASSERT_OK_AND_ASSIGN(const std::string copied, ReadSmallFile(*storage, At("to")));
  EXPECT_EQ(copied, std::string(77'777, '\0') + text.substr(1'001, 200'003) + std::string(400'000 - 77'777 - 200'003, '\0'));
}

TEST_F(LocalStorage, CopiesNothingBeyondTheSourcesEndNorFromElsewhere) {
  const auto storage = MakeLocalStorage(SystemCopies::kAlways);
  ASSERT_THAT(WriteSmallFile(*storage, At("from"), "data"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto from, storage->OpenRead(At("from")));
  ASSERT_OK_AND_ASSIGN(const auto to, storage->Create(At("to")));
  EXPECT_FALSE(to->CopyFrom(*from, 2, 0, 3));
  MemoryStorage memory;
  ASSERT_THAT(WriteSmallFile(memory, "/from", "data"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto other, memory.OpenRead("/from"));
  EXPECT_FALSE(to->CopyFrom(*other, 0, 0, 4));
}

TEST_F(LocalStorage, AFullDeviceIsToldAsSuch) {
  const auto full = storage_->OpenWrite("/dev/full");
  if (!full) GTEST_SKIP() << "no /dev/full here: " << full.error().ToString();
  const std::string text(10, 'x');
  EXPECT_THAT((*full)->WriteAt(0, std::as_bytes(std::span(text))),
              IsError(ErrorCode::kNoSpace, HasSubstr("/dev/full")));
}

TEST_F(LocalStorage, ThrottledWritesArrive) {
  ASSERT_OK_AND_ASSIGN(const auto file, storage_->Create(At("big")));
  std::string piece(std::size_t{4} << 20U, 'x');
  for (int i = 0; i < 16; ++i) {
    piece[0] = static_cast<char>('a' + i);
    const std::int64_t offset = i * static_cast<std::int64_t>(piece.size());
    ASSERT_THAT(file->WriteAt(offset, std::as_bytes(std::span(piece))), IsOk());
    file->StartWriteback(offset, static_cast<std::int64_t>(piece.size()));
  }
  ASSERT_THAT(file->Sync(), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto reader, storage_->OpenRead(At("big")));
  for (int i = 0; i < 16; ++i) {
    std::byte first{};
    ASSERT_THAT(reader->ReadAt(i * static_cast<std::int64_t>(piece.size()), std::span(&first, 1)), IsOk());
    EXPECT_EQ(static_cast<char>(first), 'a' + i);
  }
}

}  // namespace
}  // namespace crossdock::io
