// SPDX-License-Identifier: Apache-2.0
#include "execute/journal.h"

#include <gtest/gtest.h>

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::execute {
namespace {

DoneTask Done(std::int64_t task, std::uint32_t crc, std::uint64_t low) {
  PieceSum sum;
  sum.crc32 = crc;
  sum.digest.low = low;
  sum.digest.high = ~low;
  return {task, {sum, sum}};
}

TEST(Journal, ReadsWhatItWrites) {
  for (const SumKinds kinds : {SumKinds{true, true}, SumKinds{true, false}, SumKinds{false, true}}) {
    io::MemoryStorage storage;
    const JournalHeader header{"abc", 10, kinds, "--tp 2\t--set d=c * 1\tsource /a b"};
    ASSERT_OK_AND_ASSIGN(Journal journal, Journal::Create(storage, "/j", header));
    ASSERT_THAT(journal.Append({Done(3, 0xFFFFFFFFU, 1), Done(0, 7, 0)}), IsOk());
    ASSERT_OK_AND_ASSIGN(std::string text, io::ReadSmallFile(storage, "/j"));
    const auto first = ParseJournal(text);
    ASSERT_TRUE(first.has_value());
    ASSERT_OK_AND_ASSIGN(Journal more, Journal::Continue(storage, "/j", *first));
    ASSERT_THAT(more.Append({Done(9, 8, 2)}), IsOk());
    ASSERT_OK_AND_ASSIGN(text, io::ReadSmallFile(storage, "/j"));
    const auto content = ParseJournal(text);
    ASSERT_TRUE(content.has_value());
    EXPECT_EQ(content->header, header);
    ASSERT_EQ(content->done.size(), 3U);
    EXPECT_EQ(content->done[0].task, 3);
    EXPECT_EQ(content->done[2].task, 9);
    ASSERT_EQ(content->done[0].sums.size(), 2U);
    EXPECT_EQ(content->done[0].sums[1].crc32, kinds.crc32 ? 0xFFFFFFFFU : 0U);
    EXPECT_EQ(content->done[0].sums[1].digest.high, kinds.digest ? ~std::uint64_t{1} : 0U);
    EXPECT_EQ(content->valid_bytes, static_cast<std::int64_t>(text.size()));
  }
}

TEST(Journal, IgnoresATornTailAtEveryCut) {
  const SumKinds kinds{true, false};
  const std::string head = PrintJournalHeader({"abc", 10, kinds});
  const std::string one = PrintDoneTask(Done(1, 5, 0), kinds);
  const std::string text = head + one + PrintDoneTask(Done(2, 6, 0), kinds);
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    const auto content = ParseJournal(text.substr(0, cut));
    if (cut < head.size()) {
      EXPECT_FALSE(content.has_value()) << cut;
      continue;
    }
    ASSERT_TRUE(content.has_value()) << cut;
    EXPECT_EQ(content->done.size(), cut < head.size() + one.size() ? 0U : 1U) << cut;
  }
}

TEST(Journal, StopsAtAChangedLine) {
  const SumKinds kinds{true, false};
  std::string text = PrintJournalHeader({"abc", 10, kinds}) + PrintDoneTask(Done(1, 5, 0), kinds);
  const std::size_t start = text.size();
  text += PrintDoneTask(Done(2, 6, 0), kinds);
  for (std::size_t i = start; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const auto content = ParseJournal(changed);
    ASSERT_TRUE(content.has_value());
    EXPECT_EQ(content->done.size(), 1U) << i;
    EXPECT_EQ(content->valid_bytes, static_cast<std::int64_t>(start));
  }
}

TEST(Journal, RefusesTasksThePlanDoesNotHave) {
  const SumKinds kinds;
  const auto content = ParseJournal(PrintJournalHeader({"abc", 10, kinds}) + PrintDoneTask({10, {}}, kinds));
  ASSERT_TRUE(content.has_value());
  EXPECT_TRUE(content->done.empty());
}

}  // namespace
}  // namespace crossdock::execute
