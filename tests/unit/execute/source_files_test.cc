// SPDX-License-Identifier: Apache-2.0
#include "execute/source_files.h"

#include "io/memory_storage.h"
#include "io/observed_storage.h"
#include "result_matchers.h"

namespace crossdock::execute {
namespace {

using ::testing::HasSubstr;

class Nobody : public io::CallObserver {
 public:
  Verdict OnCall(const io::CallInfo&) override { return {}; }
};

/// Counts the files that are open for reading.
class OpenFiles : public io::ObservedStorage {
 public:
  OpenFiles(io::Storage& inner, io::CallObserver& observer) : ObservedStorage(inner, observer) {}
  Result<std::unique_ptr<io::ReadFile>> OpenRead(const std::string& path) override {
    CROSSDOCK_ASSIGN_OR_RETURN(auto file, ObservedStorage::OpenRead(path));
    ++opened_;
    most_ = std::max(most_, ++open_);
    return std::unique_ptr<io::ReadFile>(std::make_unique<Counted>(std::move(file), open_));
  }
  [[nodiscard]] int open() const { return open_; }
  [[nodiscard]] int most() const { return most_; }
  [[nodiscard]] int opened() const { return opened_; }

 private:
  class Counted : public io::ReadFile {
   public:
    Counted(std::unique_ptr<io::ReadFile> file, int& open) : file_(std::move(file)), open_(open) {}
    ~Counted() override { --open_; }
    Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override { return file_->ReadAt(offset, out); }
    Result<io::FileInfo> Info() const override { return file_->Info(); }
    void DropCache(std::int64_t offset, std::int64_t length) const override { file_->DropCache(offset, length); }
    const std::string& path() const override { return file_->path(); }

   private:
    std::unique_ptr<io::ReadFile> file_;
    int& open_;
  };
  int open_ = 0, most_ = 0, opened_ = 0;
};

/// A tensor whose chunks lie in a file each, all of which one task reads.
struct Job {
  explicit Job(int files) {
    EXPECT_THAT(memory.MakeDir("/s"), IsOk());
    catalog.root = "/s";
    Entry entry;
    plan::Task task;
    for (int i = 0; i < files; ++i) {
      const std::string name = std::to_string(i);
      EXPECT_THAT(io::WriteSmallFile(memory, "/s/" + name, std::string(1, static_cast<char>(i % 100))), IsOk());
      const auto info = memory.Stat("/s/" + name);
      EXPECT_THAT(info, IsOk());
      catalog.files.push_back({name, {info->size, info->mtime_ns, info->inode}});
      Chunk chunk;
      chunk.file = i;
      entry.chunks.push_back(chunk);
      task.reads.push_back({0, i, {}, 0, 1});
    }
    catalog.entries.push_back(std::move(entry));
    tasks.push_back(std::move(task));
  }
  io::MemoryStorage memory;
  Catalog catalog;
  std::vector<plan::Task> tasks;
};

/// A job of `count` files whose first task waits for all of them.
struct Waiting {
  explicit Waiting(int count) : job(count), storage(job.memory, nobody), files(storage, job.catalog) { files.Expect(job.tasks[0]); }
  Job job;
  Nobody nobody;
  OpenFiles storage;
  SourceFiles files;
};

TEST(SourceFiles, KeepsFewOfManyFilesOpen) {
  constexpr int kFiles = 1000;
  Waiting waiting(kFiles);
  auto& [job, nobody, storage, files] = waiting;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kFiles; ++i) {
      std::byte byte{};
      ASSERT_THAT(files.ReadAt(i, 0, {&byte, 1}), IsOk());
      EXPECT_EQ(static_cast<int>(byte), i % 100);
    }
  }
  EXPECT_EQ(storage.opened(), 2 * kFiles);
  EXPECT_GE(storage.most(), 200);
  EXPECT_LE(storage.most(), 257);
  ASSERT_THAT(files.Release(job.tasks[0]), IsOk());
  EXPECT_EQ(storage.open(), 0);
}

TEST(SourceFiles, OpensAFewFilesOnce) {
  Waiting waiting(10);
  auto& [job, nobody, storage, files] = waiting;
  std::byte byte{};
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_THAT(files.ReadAt(i, 0, {&byte, 1}), IsOk());
  }
  EXPECT_EQ(storage.opened(), 10);
}

TEST(SourceFiles, NoticesAChangeWhenAFileComesBack) {
  constexpr int kFiles = 300;
  Waiting waiting(kFiles);
  auto& [job, nobody, storage, files] = waiting;
  std::byte byte{};
  for (int i = 0; i < kFiles; ++i) ASSERT_THAT(files.ReadAt(i, 0, {&byte, 1}), IsOk());
  ASSERT_THAT(job.memory.RemoveFile("/s/0"), IsOk());
  ASSERT_THAT(io::WriteSmallFile(job.memory, "/s/0", "longer"), IsOk());
  EXPECT_THAT(files.ReadAt(0, 0, {&byte, 1}), IsError(ErrorCode::kCorrupt, HasSubstr("changed")));
}

}  // namespace
}  // namespace crossdock::execute
