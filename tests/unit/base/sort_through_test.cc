// SPDX-License-Identifier: Apache-2.0
#include "base/sort_through.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace crossdock {
namespace {

bool ByLength(const std::string& a, const std::string& b) { return a.size() < b.size(); }

TEST(SortThrough, SortsAndKeepsTheOrderOfEquals) {
  std::vector<std::string> words = {"three", "a", "four", "to", "b", "five"};
  SortThrough(&words, ByLength);
  EXPECT_EQ(words, (std::vector<std::string>{"a", "b", "to", "four", "five", "three"}));
}

TEST(SortThrough, LeavesAloneWhatIsSorted) {
  std::vector<std::string> words = {"a", "b", "to"};
  const std::string* first = words.data();
  SortThrough(&words, ByLength);
  EXPECT_EQ(words.data(), first);
  std::vector<std::string> none;
  SortThrough(&none, ByLength);
  EXPECT_TRUE(none.empty());
}

TEST(SortThrough, MovesAndNeverCopies) {
  std::vector<std::unique_ptr<int>> numbers;
  for (const int i : {3, 1, 2}) numbers.push_back(std::make_unique<int>(i));
  SortThrough(&numbers, [](const auto& a, const auto& b) { return *a < *b; });
  EXPECT_EQ(*numbers[0] * 100 + *numbers[1] * 10 + *numbers[2], 123);
}

}  // namespace
}  // namespace crossdock
