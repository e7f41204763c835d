// SPDX-License-Identifier: Apache-2.0
/// \file  What every Storage must do, asked of the local and the in-memory one.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/memory_storage.h"
#include "io/observed_storage.h"
#include "io/storage.h"
#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Lets everything pass: shows that ObservedStorage changes nothing.
class Permissive final : public CallObserver {
 public:
  Verdict OnCall(const CallInfo&) override { return {}; }
};

class StorageConformance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "local") {
      std::string pattern = (std::filesystem::temp_directory_path() / "crossdock-storage-XXXXXX").string();
      ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
      temporary_ = root_ = pattern;
      base_ = MakeLocalStorage();
    } else {
      root_ = "/disk";
      base_ = std::make_unique<MemoryStorage>();
      ASSERT_THAT(base_->MakeDir(root_), IsOk());
    }
    if (GetParam() == "observed") observed_ = std::make_unique<ObservedStorage>(*base_, permissive_);
  }
  void TearDown() override {
    if (!temporary_.empty()) std::filesystem::remove_all(temporary_);
  }
  Storage& storage() { return observed_ ? *observed_ : *base_; }
  std::string At(std::string_view name) const { return JoinPath(root_, name); }
  std::string Content(const std::string& path) {
    auto text = ReadSmallFile(storage(), path);
    return text ? *text : "error: " + text.error().ToString();
  }

 private:
  std::string root_, temporary_;
  std::unique_ptr<Storage> base_;
  Permissive permissive_;
  std::unique_ptr<ObservedStorage> observed_;
};

TEST_P(StorageConformance, ReadsWhatWasWritten) {
  ASSERT_OK_AND_ASSIGN(const auto file, storage().Create(At("a")));
  ASSERT_THAT(file->WriteAt(4, Bytes("efgh")), IsOk());
  ASSERT_THAT(file->WriteAt(0, Bytes("abcd")), IsOk());
  ASSERT_THAT(file->Sync(), IsOk());
  EXPECT_EQ(Content(At("a")), "abcdefgh");
  ASSERT_OK_AND_ASSIGN(const FileInfo info, storage().Stat(At("a")));
  EXPECT_EQ(info.size, 8);
  EXPECT_EQ(info.kind, FileKind::kFile);
  EXPECT_FALSE(info.is_symlink);
}

TEST_P(StorageConformance, FillsHolesWithZeros) {
  ASSERT_OK_AND_ASSIGN(const auto file, storage().Create(At("a")));
  ASSERT_THAT(file->WriteAt(3, Bytes("x")), IsOk());
  EXPECT_EQ(Content(At("a")), std::string("\0\0\0x", 4));
}

TEST_P(StorageConformance, PreallocateThenTruncateSetTheSize) {
  ASSERT_OK_AND_ASSIGN(const auto file, storage().Create(At("a")));
  ASSERT_THAT(file->Preallocate(10), IsOk());
  ASSERT_THAT(file->Preallocate(0), IsOk());
  ASSERT_THAT(file->Truncate(5), IsOk());
  EXPECT_EQ(Content(At("a")), std::string(5, '\0'));
}

TEST_P(StorageConformance, RefusesToReadBeyondTheEnd) {
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), "abc"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto file, storage().OpenRead(At("a")));
  std::array<std::byte, 8> out{};
  EXPECT_THAT(file->ReadAt(1, out), IsError(ErrorCode::kCorrupt, HasSubstr("too early")));
  EXPECT_THAT(file->ReadAt(100, std::span(out).first(1)), IsError(ErrorCode::kCorrupt, HasSubstr("too early")));
  EXPECT_THAT(file->ReadAt(1, std::span(out).first(2)), IsOk());
}

TEST_P(StorageConformance, AbsentFilesAreIncomplete) {
  EXPECT_THAT(storage().Stat(At("a")), IsError(ErrorCode::kIncomplete, HasSubstr("`")));
  EXPECT_THAT(storage().OpenRead(At("a")), IsError(ErrorCode::kIncomplete, HasSubstr("")));
  EXPECT_THAT(storage().OpenWrite(At("a")), IsError(ErrorCode::kIncomplete, HasSubstr("")));
  EXPECT_THAT(storage().List(At("a")), IsError(ErrorCode::kIncomplete, HasSubstr("")));
  EXPECT_THAT(storage().RemoveFile(At("a")), IsError(ErrorCode::kIncomplete, HasSubstr("")));
  EXPECT_THAT(storage().RemoveDir(At("a")), IsError(ErrorCode::kIncomplete, HasSubstr("")));
  EXPECT_THAT(storage().Rename(At("a"), At("b")), IsError(ErrorCode::kIncomplete, HasSubstr("")));
  EXPECT_THAT(storage().Create(At("no/a")), IsError(ErrorCode::kIo, HasSubstr("")));
}

TEST_P(StorageConformance, CreateRefusesWhatIsThere) {
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), "abc"), IsOk());
  EXPECT_THAT(storage().Create(At("a")), IsError(ErrorCode::kIo, HasSubstr("exists")));
  EXPECT_THAT(storage().MakeDir(At("a")), IsError(ErrorCode::kIo, HasSubstr("exists")));
  EXPECT_EQ(Content(At("a")), "abc");
}

TEST_P(StorageConformance, OpenReadRefusesDirectories) {
  ASSERT_THAT(storage().MakeDir(At("d")), IsOk());
  EXPECT_THAT(storage().OpenRead(At("d")), IsError(ErrorCode::kUnsupported, HasSubstr("regular file")));
}

TEST_P(StorageConformance, ListsNamesInOrder) {
  for (const char* name : {"b", "c", "a"}) ASSERT_THAT(WriteSmallFile(storage(), At(name), name), IsOk());
  ASSERT_THAT(storage().MakeDir(At("d")), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto entries, storage().List(At("")));
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(entries[3].kind, FileKind::kDirectory);
  EXPECT_EQ(entries[0].kind, FileKind::kFile);
}

TEST_P(StorageConformance, RenameReplacesAFileAndRefusesAFullDirectory) {
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), "new"), IsOk());
  ASSERT_THAT(WriteSmallFile(storage(), At("b"), "old"), IsOk());
  ASSERT_THAT(storage().Rename(At("a"), At("b")), IsOk());
  EXPECT_EQ(Content(At("b")), "new");
  EXPECT_FALSE(Exists(storage(), At("a")));
  ASSERT_THAT(MakeDirs(storage(), At("x/full")), IsOk());
  ASSERT_THAT(storage().MakeDir(At("y")), IsOk());
  EXPECT_THAT(storage().Rename(At("y"), At("x")), IsError(ErrorCode::kIo, HasSubstr("")));
}

TEST_P(StorageConformance, ExchangeSwapsTwoTrees) {
  ASSERT_THAT(MakeDirs(storage(), At("x")), IsOk());
  ASSERT_THAT(MakeDirs(storage(), At("y")), IsOk());
  ASSERT_THAT(WriteSmallFile(storage(), At("x/f"), "1"), IsOk());
  ASSERT_THAT(WriteSmallFile(storage(), At("y/f"), "2"), IsOk());
  const auto exchanged = storage().Exchange(At("x"), At("y"));
  if (!exchanged && exchanged.error().code == ErrorCode::kUnsupported) GTEST_SKIP() << "no RENAME_EXCHANGE here";
  ASSERT_THAT(exchanged, IsOk());
  EXPECT_EQ(Content(At("x/f")), "2");
  EXPECT_EQ(Content(At("y/f")), "1");
}

TEST_P(StorageConformance, OpenWriteGoesOnWithAFile) {
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), "abc"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto file, storage().OpenWrite(At("a")));
  ASSERT_THAT(file->WriteAt(1, Bytes("X")), IsOk());
  EXPECT_EQ(Content(At("a")), "aXc");
}

TEST_P(StorageConformance, AnOpenFileOutlivesItsName) {
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), "abc"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto file, storage().OpenRead(At("a")));
  ASSERT_THAT(storage().RemoveFile(At("a")), IsOk());
  std::array<std::byte, 3> out{};
  EXPECT_THAT(file->ReadAt(0, out), IsOk());
}

TEST_P(StorageConformance, WritingChangesTheIdentityOfAFile) {
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), "abc"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto reader, storage().OpenRead(At("a")));
  ASSERT_OK_AND_ASSIGN(const FileInfo before, reader->Info());
  ASSERT_OK_AND_ASSIGN(const auto writer, storage().OpenWrite(At("a")));
  ASSERT_THAT(writer->WriteAt(3, Bytes("d")), IsOk());
  ASSERT_OK_AND_ASSIGN(const FileInfo after, reader->Info());
  EXPECT_EQ(before.inode, after.inode);
  EXPECT_NE(before.size, after.size);
}

TEST_P(StorageConformance, LockIsExclusiveUntilItGoes) {
  {
    ASSERT_OK_AND_ASSIGN(const auto lock, storage().Lock(At("lock")));
    ASSERT_NE(lock, nullptr);
    ASSERT_OK_AND_ASSIGN(const auto second, storage().Lock(At("lock")));
    EXPECT_EQ(second, nullptr);
  }
  ASSERT_OK_AND_ASSIGN(const auto again, storage().Lock(At("lock")));
  EXPECT_NE(again, nullptr);
}

TEST_P(StorageConformance, MakeDirsMakesAllMissing) {
  ASSERT_THAT(MakeDirs(storage(), At("p/q/r/")), IsOk());
  ASSERT_THAT(MakeDirs(storage(), At("p/q/r")), IsOk());
  ASSERT_OK_AND_ASSIGN(const FileInfo info, storage().Stat(At("p/q/r")));
  EXPECT_EQ(info.kind, FileKind::kDirectory);
  ASSERT_THAT(WriteSmallFile(storage(), At("file"), ""), IsOk());
  EXPECT_FALSE(MakeDirs(storage(), At("file/x")).has_value());
}

TEST_P(StorageConformance, RemoveTreeRemovesAllAndMindsNothingThere) {
  ASSERT_THAT(MakeDirs(storage(), At("t/u/v")), IsOk());
  ASSERT_THAT(WriteSmallFile(storage(), At("t/u/f"), "x"), IsOk());
  ASSERT_THAT(RemoveTree(storage(), At("t")), IsOk());
  EXPECT_FALSE(Exists(storage(), At("t")));
  EXPECT_THAT(RemoveTree(storage(), At("t")), IsOk());
  ASSERT_THAT(WriteSmallFile(storage(), At("f"), "x"), IsOk());
  EXPECT_THAT(RemoveTree(storage(), At("f")), IsOk());
  EXPECT_FALSE(Exists(storage(), At("f")));
}

TEST_P(StorageConformance, CopyFileCopiesBytes) {
  std::string content(3'000'001, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 % 251);
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), content), IsOk());
  ASSERT_THAT(CopyFile(storage(), At("a"), storage(), At("b")), IsOk());
  EXPECT_TRUE(Content(At("b")) == content);
  EXPECT_THAT(CopyFile(storage(), At("a"), storage(), At("b")), IsError(ErrorCode::kIo, HasSubstr("exists")));
}

TEST_P(StorageConformance, ReadSmallFileHasALimit) {
  ASSERT_THAT(WriteSmallFile(storage(), At("a"), "abc"), IsOk());
  EXPECT_THAT(ReadSmallFile(storage(), At("a"), 2), IsError(ErrorCode::kUnsupported, HasSubstr("at most 2 bytes")));
}

TEST_P(StorageConformance, ProbeTellsFreeSpace) {
  ASSERT_OK_AND_ASSIGN(const Capabilities can, storage().Probe(At("")));
  EXPECT_GT(can.free_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(All, StorageConformance, ::testing::Values("local", "memory", "observed"),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace crossdock::io
