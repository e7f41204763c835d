// SPDX-License-Identifier: Apache-2.0
#include "execute/decoded_chunks.h"

#include <chrono>
#include <semaphore>
#include <thread>

#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/execute/encoded_reader.h"

namespace crossdock::execute {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBytes = 3 << 20;

std::string Content(std::int64_t bytes) {
  std::string out;
  for (std::int64_t i = 0; i < bytes; ++i) out += static_cast<char>(i * 7 + i / 251);
  return out;
}

/// One tensor of two chunks, the first stored as it is.
class DecodedChunksTest : public ::testing::Test {
 protected:
  void Make(std::int64_t kept, bool damaged = false) {
    Catalog catalog;
    catalog.root = "/s";
    Entry entry{"w", Slot::kParam, DType::kU8, {kBytes + 2}, {}};
    entry.chunks.push_back({Box{{0}, {2}}, 0, {0, 2}, ChunkEncoding::kRaw, 0});
    entry.chunks.push_back({Box{{2}, {kBytes}}, 0, {2, 2 * kBytes}, ChunkEncoding::kEncoded, 0});
    catalog.entries.push_back(entry);
    std::string file = "ab" + EncodedReader::Encode(Content(kBytes));
    if (damaged) file[static_cast<std::size_t>(kBytes)] ^= 1;
    catalog.files.push_back({"data", {}});
    ASSERT_THAT(storage_.MakeDir("/s"), IsOk());
    ASSERT_THAT(storage_.MakeDir("/out"), IsOk());
    ASSERT_THAT(io::WriteSmallFile(storage_, "/s/data", file), IsOk());
    reader_.emplace(std::move(catalog));
    decoded_.emplace(*reader_, pool_, kept, storage_, "/out", [this] { return stopped_; });
    decoded_->Expect(1);
    decoded_->Expect(1);
  }
  Result<std::string> Read(std::int64_t offset, std::int64_t length) {
    std::string out(static_cast<std::size_t>(length), '\0');
    const auto open = [&](std::int32_t file, std::int64_t bytes) -> Result<std::shared_ptr<const io::ReadFile>> {
      EXPECT_EQ(file, 0);
      EXPECT_EQ(bytes, 2 * kBytes);
      CROSSDOCK_ASSIGN_OR_RETURN(auto opened, storage_.OpenRead("/s/data"));
      return std::shared_ptr<const io::ReadFile>(std::move(opened));
    };
    CROSSDOCK_RETURN_IF_ERROR(decoded_->ReadAt(1, offset, std::as_writable_bytes(std::span(out.data(), out.size())), open));
    return out;
  }
  io::MemoryStorage storage_;
  BufferPool pool_{16 << 20};
  std::optional<EncodedReader> reader_;
  bool stopped_ = false;
  std::optional<DecodedChunks> decoded_;
};

TEST_F(DecodedChunksTest, NumbersOnlyWhatIsEncoded) {
  Make(0);
  EXPECT_EQ(decoded_->NumberOf(0, 0), -1);
  EXPECT_EQ(decoded_->NumberOf(0, 1), 1);
}

TEST_F(DecodedChunksTest, KeepsAChunkInMemoryUntilItsLastReadIsReleased) {
  Make(4 << 20);
  ASSERT_OK_AND_ASSIGN(const std::string end, Read(kBytes - 1000, 1000));
  EXPECT_EQ(end, Content(kBytes).substr(kBytes - 1000));
  EXPECT_THAT(decoded_->Release(1), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::string begin, Read(0, 1000));
  EXPECT_EQ(begin, Content(kBytes).substr(0, 1000));
  EXPECT_EQ(reader_->opened(), 1);
  EXPECT_TRUE(storage_.Files("/out").empty());
  EXPECT_THAT(decoded_->Release(1), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto rest, pool_.TryTake(16 << 20));  // all of it is back
  EXPECT_TRUE(rest.has_value());
}

TEST_F(DecodedChunksTest, SpoolsAChunkThatMemoryHasNoRoomForAndRemovesTheFile) {
  Make(1 << 20);
  ASSERT_OK_AND_ASSIGN(const std::string all, Read(0, kBytes));
  EXPECT_EQ(all, Content(kBytes));
  EXPECT_EQ(pool_.peak_bytes(), 0);
  EXPECT_EQ(storage_.Files("/out").size(), 1U);
  EXPECT_THAT(decoded_->Release(1), IsOk());
  EXPECT_EQ(storage_.Files("/out").size(), 1U);
  EXPECT_THAT(decoded_->Release(1), IsOk());
  EXPECT_TRUE(storage_.Files("/out").empty());
}

TEST_F(DecodedChunksTest, ARunThatEndsEarlyLeavesNoScratchFile) {
  Make(0);
  ASSERT_THAT(Read(0, 10), IsOk());
  EXPECT_EQ(storage_.Files("/out").size(), 1U);
  decoded_.reset();
  EXPECT_TRUE(storage_.Files("/out").empty());
}

TEST_F(DecodedChunksTest, DamageLeavesNoScratchFile) {
  Make(0, true);
  ASSERT_THAT(Read(0, 10), IsError(ErrorCode::kCorrupt, HasSubstr("complement")));
  EXPECT_TRUE(storage_.Files("/out").empty());
}

TEST_F(DecodedChunksTest, DamageNamesTheTensorAndKeepsNoMemory) {
  Make(4 << 20, true);
  const auto read = Read(0, 10);
  ASSERT_THAT(read, IsError(ErrorCode::kCorrupt, HasSubstr("complement")));
  EXPECT_EQ(read.error().tensor, "w");
  ASSERT_OK_AND_ASSIGN(const auto rest, pool_.TryTake(16 << 20));
  EXPECT_TRUE(rest.has_value());
}

/// Three chunks; the first is being decoded while a second worker asks for it.
TEST(DecodedChunks, AWorkerThatHasToWaitDecodesWhatComesNext) {
  for (const std::int64_t kept : {3 << 20, 1 << 20}) {
    io::MemoryStorage storage;
    Catalog catalog;
    catalog.root = "/s";
    Entry entry{"w", Slot::kParam, DType::kU8, {3 << 20}, {}};
    for (std::int64_t c = 0; c < 3; ++c) entry.chunks.push_back({Box{{c << 20}, {1 << 20}}, 0, {c << 21, 2 << 20}, ChunkEncoding::kEncoded, 0});
    catalog.entries.push_back(entry);
    catalog.files.push_back({"data", {}});
    ASSERT_THAT(storage.MakeDir("/s"), IsOk());
    ASSERT_THAT(io::WriteSmallFile(storage, "/s/data", EncodedReader::Encode(Content(3 << 20))), IsOk());
    EncodedReader reader(std::move(catalog));
    std::binary_semaphore begun(0), go_on(0);
    std::atomic<int> ahead = 0;
    reader.before_open = [&](std::int32_t chunk) {
      if (chunk != 0) {
        ++ahead;
        return;
      }
      begun.release();
      go_on.acquire();
    };
    BufferPool pool(16 << 20);
    DecodedChunks decoded(reader, pool, kept, storage, "/out", [] { return false; });
    for (std::int32_t c = 0; c < 3; ++c) decoded.Expect(c);
    const auto open = [&](std::int32_t, std::int64_t) -> Result<std::shared_ptr<const io::ReadFile>> {
      CROSSDOCK_ASSIGN_OR_RETURN(auto opened, storage.OpenRead("/s/data"));
      return std::shared_ptr<const io::ReadFile>(std::move(opened));
    };
    const auto read_first = [&] {
      std::string out(10, '\0');
      EXPECT_THAT(decoded.ReadAt(0, 5, std::as_writable_bytes(std::span(out)), open), IsOk());
      EXPECT_EQ(out, Content(15).substr(5));
    };
    std::jthread first(read_first);
    begun.acquire();
    std::jthread second(read_first);
    // With room for all, the second takes both others; with room for one chunk alone, none.
    const int wanted = kept == 3 << 20 ? 2 : 0;
    for (int i = 0; i < 5000 && ahead < wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ahead, wanted);
    go_on.release();
    first.join();
    second.join();
    for (std::int32_t c = 0; c < 3; ++c) EXPECT_THAT(decoded.Release(c), IsOk());
    ASSERT_OK_AND_ASSIGN(const auto rest, pool.TryTake(16 << 20));
    EXPECT_TRUE(rest.has_value());
  }
}

TEST_F(DecodedChunksTest, StopsInTheMiddle) {
  Make(4 << 20);
  stopped_ = true;
  EXPECT_THAT(Read(0, 10), IsError(ErrorCode::kCancelled, HasSubstr("interrupted")));
}

}  // namespace
}  // namespace crossdock::execute
