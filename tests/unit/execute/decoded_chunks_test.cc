// SPDX-License-Identifier: Apache-2.0
#include "execute/decoded_chunks.h"

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

TEST_F(DecodedChunksTest, DamageNamesTheTensorAndKeepsNoMemory) {
  Make(4 << 20, true);
  const auto read = Read(0, 10);
  ASSERT_THAT(read, IsError(ErrorCode::kCorrupt, HasSubstr("complement")));
  EXPECT_EQ(read.error().tensor, "w");
  ASSERT_OK_AND_ASSIGN(const auto rest, pool_.TryTake(16 << 20));
  EXPECT_TRUE(rest.has_value());
}

TEST_F(DecodedChunksTest, StopsInTheMiddle) {
  Make(4 << 20);
  stopped_ = true;
  EXPECT_THAT(Read(0, 10), IsError(ErrorCode::kCancelled, HasSubstr("interrupted")));
}

}  // namespace
}  // namespace crossdock::execute
