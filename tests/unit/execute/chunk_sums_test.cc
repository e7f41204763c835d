// SPDX-License-Identifier: Apache-2.0
#include "execute/chunk_sums.h"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace crossdock::execute {
namespace {

Catalog TwoChunks(std::int64_t first, std::int64_t second) {
  Catalog catalog;
  catalog.entries.resize(1);
  catalog.entries[0].chunks.resize(2);
  catalog.entries[0].chunks[0].bytes = {0, first};
  catalog.entries[0].chunks[1].bytes = {first, second};
  return catalog;
}

TEST(ChunkSums, JoinsPiecesInWhateverOrderTheyCome) {
  std::string data(1000, '\0');
  std::mt19937 random(3);
  for (char& c : data) c = static_cast<char>(random());
  const auto bytes = [&](std::int64_t offset, std::int64_t length) {
    return std::as_bytes(std::span(data)).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
  };
  const SumKinds kinds{true, true};
  for (int round = 0; round < 20; ++round) {
    ChunkSums sums(TwoChunks(700, 300), kinds);
    std::vector<std::int64_t> starts = {0, 1, 64, 300, 699};
    std::vector<std::size_t> order = {0, 1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), random);
    std::optional<std::uint32_t> crc;
    for (const std::size_t i : order) {
      EXPECT_FALSE(crc.has_value());
      const std::int64_t end = i + 1 < starts.size() ? starts[i + 1] : 700;
      PieceSum sum;
      const std::int64_t half = (end - starts[i]) / 2;  // as slices extend it
      Extend(sum, kinds, bytes(starts[i], half));
      Extend(sum, kinds, bytes(starts[i] + half, end - starts[i] - half));
      crc = sums.Add(0, 0, starts[i], end - starts[i], sum);
    }
    ASSERT_TRUE(crc.has_value());
    EXPECT_EQ(*crc, Crc32(0, bytes(0, 700)));
    PieceSum rest;
    Extend(rest, kinds, bytes(700, 300));
    EXPECT_EQ(sums.Add(0, 1, 0, 300, rest), Crc32(0, bytes(700, 300)));
    ASSERT_EQ(sums.EntryDigests().size(), 1U);
    EXPECT_EQ(sums.EntryDigests()[0], DigestOf(bytes(0, 1000)));
  }
}

TEST(ChunkSums, TellsWhatIsThereOfChunksThatOthersFinish) {
  ChunkSums sums(TwoChunks(8, 4), {true, false});
  EXPECT_FALSE(sums.Add(0, 0, 6, 2, {11, {}}).has_value());
  EXPECT_TRUE(sums.Add(0, 1, 0, 4, {12, {}}).has_value());
  const std::vector<LoosePiece> loose = sums.Loose();
  ASSERT_EQ(loose.size(), 1U);
  EXPECT_EQ(loose[0].entry, 0);
  EXPECT_EQ(loose[0].chunk, 0);
  EXPECT_EQ(loose[0].offset, 6);
  EXPECT_EQ(loose[0].length, 2);
  EXPECT_EQ(loose[0].crc32, 11U);
}

TEST(ChunkSums, DoesNothingWhenNothingIsAsked) {
  ChunkSums sums(TwoChunks(4, 4), {});
  EXPECT_FALSE(sums.Add(0, 0, 0, 4, {}).has_value());
  EXPECT_TRUE(sums.EntryDigests().empty());
}

TEST(ChunkSums, AnEmptyChunkHasTheDigestOfNothing) {
  ChunkSums sums(TwoChunks(0, 0), {false, true});
  ASSERT_EQ(sums.EntryDigests().size(), 1U);
  EXPECT_EQ(sums.EntryDigests()[0], DigestOf({}));
}

}  // namespace
}  // namespace crossdock::execute
