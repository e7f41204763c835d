// SPDX-License-Identifier: Apache-2.0
#include "io/direct_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "io/local_storage.h"
#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::size_t kPage = 4096;   // where pages are larger, so is what these tests ask for
constexpr std::size_t kMiB = std::size_t{1} << 20U;

class DirectWrite : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "crossdock-direct-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string At(std::string_view name) const { return JoinPath(root_, name); }
  /// Whether O_DIRECT passes the cache by where the tests write: others take the flag and go through it (tmpfs, Btrfs with checksums).
  bool Direct() const {
    struct statfs st{};
    const bool known = ::statfs(root_.c_str(), &st) == 0 && (st.f_type == 0xEF53 || st.f_type == 0x58465342);
    const FileDescriptor fd(::open(At("probe").c_str(), O_CREAT | O_WRONLY | O_DIRECT, 0600));
    return known && fd.get() >= 0;
  }
  static std::string Pattern(std::size_t size, int seed) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 7 + i / 251 + static_cast<std::size_t>(seed)) % 253);
    return text;
  }
  /// How many whole pages of the file's first `bytes` the cache holds.
  std::size_t Cached(const std::string& path, std::size_t bytes) const {
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY));
    void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> resident((bytes + page - 1) / page);
    const int told = ::mincore(map, bytes, resident.data());
    ::munmap(map, bytes);
    return told != 0 ? bytes : static_cast<std::size_t>(std::ranges::count_if(resident, [](unsigned char r) { return (r & 1U) != 0; }));
  }
  std::string root_;
};

/// Memory that begins `at` bytes behind the border of a page.
class Memory {
 public:
  Memory(std::string_view bytes, std::size_t at) : memory_(bytes.size() + 2 * kPage, '\0') {
    const std::size_t border = (kPage - reinterpret_cast<std::uintptr_t>(memory_.data()) % kPage) % kPage;
    first_ = border + at % kPage;
    bytes.copy(memory_.data() + first_, bytes.size());
    size_ = bytes.size();
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(memory_)).subspan(first_, size_); }

 private:
  std::string memory_;
  std::size_t first_ = 0, size_ = 0;
};

TEST_F(DirectWrite, TakesWholePagesOfLargeWritesThatLieSoInMemory) {
  if (::sysconf(_SC_PAGESIZE) != static_cast<int>(kPage)) GTEST_SKIP() << "the numbers below are for pages of 4096 bytes";
  const std::string text(kMiB, 'x');
  const auto part = [&](std::size_t offset, std::size_t size, std::size_t memory) {
    const DirectFile::Part p = DirectFile::WholePages(static_cast<std::int64_t>(offset), Memory(std::string_view(text).substr(0, size), memory).bytes());
    return std::pair(p.first, p.length);
  };
  constexpr std::pair kNone(std::size_t{0}, std::size_t{0});
  EXPECT_EQ(part(0, kMiB, 0), std::pair(std::size_t{0}, kMiB));
  EXPECT_EQ(part(1, kMiB, 1), std::pair(kPage - 1, kMiB - kPage));
  EXPECT_EQ(part(3 * kPage + 8, 300'000, 8), std::pair(kPage - 8, 72 * kPage));
  EXPECT_EQ(part(3 * kPage + 8, 300'000, 16), kNone);
  EXPECT_EQ(part(0, DirectFile::kLeast - 1, 0), kNone);
  EXPECT_EQ(part(8, DirectFile::kLeast, 8), kNone);
  EXPECT_EQ(part(0, 0, 0), kNone);
}

TEST_F(DirectWrite, EveryOffsetAndLengthGivesTheBytesOfAWriteThroughTheCache) {
  const auto direct = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kAlways);
  const auto cached = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kNever);
  const std::string before(40'000, 'b');
  int number = 0;
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, kPage - 1, kPage, 5 * kPage + 17}) {
    for (const std::size_t size : {std::size_t{100}, DirectFile::kLeast, DirectFile::kLeast + kPage + 3, kMiB, 2 * kMiB + kPage + 1}) {
      const Memory data(Pattern(size, ++number), offset);
      std::vector<std::string> got;
      for (Storage* storage : {direct.get(), cached.get()}) {
        const std::string path = At("f" + std::to_string(number) + (storage == direct.get() ? "d" : "c"));
        ASSERT_OK_AND_ASSIGN(const auto file, storage->Create(path));
        ASSERT_THAT(file->WriteAt(0, std::as_bytes(std::span(before))), IsOk());  // pages that are dirty already
        ASSERT_THAT(file->WriteAt(static_cast<std::int64_t>(offset), data.bytes()), IsOk());
        ASSERT_OK_AND_ASSIGN(std::string read, ReadSmallFile(*storage, path));
        got.push_back(std::move(read));
      }
      EXPECT_TRUE(got[0] == got[1]) << offset << " " << size;
    }
  }
}

TEST_F(DirectWrite, LeavesNoPageInTheCache) {
  if (!Direct()) GTEST_SKIP() << "no O_DIRECT in " << root_ << ": whether it is used was NOT tested";
  const auto storage = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kAlways);
  const auto cached = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kNever);
  const std::string text = Pattern(4 * kMiB, 1);
  ASSERT_OK_AND_ASSIGN(const auto other, cached->Create(At("cached")));
  ASSERT_THAT(other->WriteAt(0, std::as_bytes(std::span(text))), IsOk());
  if (Cached(At("cached"), text.size()) == 0) GTEST_SKIP() << "the system does not say what its cache holds: NOT tested";
  ASSERT_OK_AND_ASSIGN(const auto file, storage->Create(At("direct")));
  ASSERT_THAT(file->Preallocate(4 << 20), IsOk());
  ASSERT_THAT(file->Truncate(4 << 20), IsOk());
  ASSERT_THAT(file->WriteAt(0, Memory(text, 0).bytes()), IsOk());
  EXPECT_EQ(Cached(At("direct"), text.size()), 0U);
}

TEST_F(DirectWrite, NeighboursInOnePageDoNotHurtEachOther) {
  const auto storage = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kAlways);
  constexpr std::size_t kEach = 3 * 100'003;   // pieces begin and end within pages
  const std::string text = Pattern(16 * kEach, 3);
  ASSERT_OK_AND_ASSIGN(const auto file, storage->Create(At("f")));
  ASSERT_THAT(file->Truncate(static_cast<std::int64_t>(text.size())), IsOk());
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = t; i < 16; i += 4) {
          const Memory piece(std::string_view(text).substr(i * kEach, kEach), i * kEach);
          EXPECT_THAT(file->WriteAt(static_cast<std::int64_t>(i * kEach), piece.bytes()), IsOk());
        }
      });
    }
  }
  ASSERT_OK_AND_ASSIGN(const std::string got, ReadSmallFile(*storage, At("f")));
  EXPECT_TRUE(got == text);
}

TEST_F(DirectWrite, GoesThroughTheCacheWhereTheNameIsAnotherFiles) {
  const auto storage = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kAlways);
  const std::string text = Pattern(kMiB, 5);
  ASSERT_OK_AND_ASSIGN(const auto file, storage->Create(At("a")));
  fs::rename(At("a"), At("b"));
  ASSERT_THAT(WriteSmallFile(*storage, At("a"), "another"), IsOk());
  ASSERT_THAT(file->WriteAt(0, Memory(text, 0).bytes()), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string got, ReadSmallFile(*storage, At("b")));
  EXPECT_TRUE(got == text);
  ASSERT_OK_AND_ASSIGN(const std::string other, ReadSmallFile(*storage, At("a")));
  EXPECT_EQ(other, "another");
}

TEST_F(DirectWrite, WhatIsCutShortIsToldByTheWriteThroughTheCache) {
  const auto storage = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kAlways);
  const std::string text = Pattern(kMiB, 7);
  ASSERT_OK_AND_ASSIGN(const auto file, storage->Create(At("f")));
  // The system ends a file in the middle of a page: the direct write is cut there or refused, and so is the one that follows it.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{(kMiB / 2) + 100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status written = file->WriteAt(0, Memory(text, 0).bytes());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().ToString(), HasSubstr("f"));
  const auto size = static_cast<std::size_t>(fs::file_size(At("f")));
  EXPECT_LE(size, kMiB / 2 + 100);
  ASSERT_OK_AND_ASSIGN(const std::string part, ReadSmallFile(*storage, At("f")));
  EXPECT_TRUE(part == text.substr(0, size));
  ASSERT_THAT(file->WriteAt(0, Memory(text, 0).bytes()), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string got, ReadSmallFile(*storage, At("f")));
  EXPECT_TRUE(got == text);
}

TEST_F(DirectWrite, ADeviceIsWrittenThroughTheCache) {
  const auto storage = MakeLocalStorage(SystemCopies::kWhereItPays, DirectWrites::kAlways);
  const auto full = storage->OpenWrite("/dev/full");
  if (!full) GTEST_SKIP() << "no /dev/full here: " << full.error().ToString();
  const std::string text = Pattern(kMiB, 6);
  EXPECT_THAT((*full)->WriteAt(0, Memory(text, 0).bytes()), IsError(ErrorCode::kNoSpace, HasSubstr("/dev/full")));
}

TEST(DirectFiles, AreFew) {
  DirectFiles files;
  for (int i = 0; i < DirectFiles::kMost; ++i) EXPECT_TRUE(files.Take());
  EXPECT_FALSE(files.Take());
  files.Return();
  EXPECT_TRUE(files.Take());
}

}  // namespace
}  // namespace crossdock::io
