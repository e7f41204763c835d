// SPDX-License-Identifier: Apache-2.0
#include "verify/stored_chunks.h"

#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/execute/encoded_reader.h"

namespace crossdock::verify {
namespace {

using execute::EncodedReader;

/// Three encoded chunks of 1000 bytes, and one that is stored as it is.
class StoredChunksTest : public ::testing::Test {
 protected:
  StoredChunksTest() {
    Catalog catalog;
    catalog.root = "/s";
    Entry entry{"w", Slot::kParam, DType::kU8, {4000}, {}};
    std::string file;
    for (int c = 0; c < 4; ++c) {
      std::string part;
      for (int i = 0; i < 1000; ++i) part += static_cast<char>(i * 3 + c * 50 + i / 256);
      content_ += part;
      const std::string stored = c == 3 ? part : EncodedReader::Encode(part);
      const ByteRange range{static_cast<std::int64_t>(file.size()), static_cast<std::int64_t>(stored.size())};
      entry.chunks.push_back({Box{{c * 1000}, {1000}}, 0, range, c == 3 ? ChunkEncoding::kRaw : ChunkEncoding::kEncoded, 0});
      file += stored;
    }
    catalog.entries.push_back(entry);
    catalog.files.push_back({"data", {}});
    EXPECT_THAT(storage_.MakeDir("/s"), IsOk());
    EXPECT_THAT(io::WriteSmallFile(storage_, "/s/data", file), IsOk());
    reader_.emplace(std::move(catalog));
  }
  std::string Read(StoredChunks& chunks, int chunk, std::int64_t offset, std::size_t length) {
    std::string out(length, '\0');
    EXPECT_THAT(chunks.ReadAt(0, chunk, offset, std::as_writable_bytes(std::span(out.data(), out.size()))), IsOk());
    EXPECT_EQ(out, content_.substr(static_cast<std::size_t>(chunk * 1000 + offset), length)) << chunk << " at " << offset;
    return out;
  }
  io::MemoryStorage storage_;
  std::string content_;
  std::optional<EncodedReader> reader_;
};

TEST_F(StoredChunksTest, KeepsWhatFitsAndForgetsTheOldest) {
  StoredChunks chunks(storage_, *reader_, 2000);
  Read(chunks, 0, 990, 10);
  Read(chunks, 1, 0, 1000);
  Read(chunks, 0, 5, 10);
  EXPECT_EQ(reader_->opened(), 2);
  Read(chunks, 2, 5, 10);  // in the place of chunk 1
  Read(chunks, 0, 7, 10);
  EXPECT_EQ(reader_->opened(), 3);
  Read(chunks, 1, 7, 10);
  EXPECT_EQ(reader_->opened(), 4);
}

TEST_F(StoredChunksTest, StreamsWhatDoesNotFitAndBeginsAnewForEarlierParts) {
  StoredChunks chunks(storage_, *reader_, 999);
  Read(chunks, 0, 100, 10);
  Read(chunks, 0, 110, 500);
  Read(chunks, 1, 0, 10);
  Read(chunks, 0, 900, 100);
  EXPECT_EQ(reader_->opened(), 2);
  Read(chunks, 0, 0, 1000);
  EXPECT_EQ(reader_->opened(), 3);
}

TEST_F(StoredChunksTest, ReadsPlainChunksInPlace) {
  StoredChunks chunks(storage_, *reader_, 0);
  Read(chunks, 3, 500, 500);
  EXPECT_EQ(reader_->opened(), 0);
}

}  // namespace
}  // namespace crossdock::verify
