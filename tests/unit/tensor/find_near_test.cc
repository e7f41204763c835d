// SPDX-License-Identifier: Apache-2.0
#include "tensor/find_near.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "result_matchers.h"

namespace crossdock {
namespace {

/// Names "t01", "t03", ...: what lies between, before and behind is absent.
Catalog OddNames(int count) {
  Catalog catalog;
  for (int i = 0; i < count; ++i) {
    Entry entry;
    entry.name = fmt::format("t{:02}", 2 * i + 1);
    catalog.entries.push_back(std::move(entry));
  }
  return catalog;
}

TEST(FindNear, FindsWhatFindFindsFromWhereverItStarts) {
  for (const int count : {0, 1, 2, 3, 7, 8, 33}) {
    const Catalog catalog = OddNames(count);
    for (int start = 0; start <= count + 2; ++start) {
      for (int number = 0; number <= 2 * count + 2; ++number) {
        const std::string name = fmt::format("t{:02}", number);
        std::int32_t near = start;
        EXPECT_EQ(FindNear(catalog, name, &near), catalog.Find(name)) << name << " of " << count << " from " << start;
        EXPECT_EQ(near, std::min(number / 2, count)) << name << " of " << count << " from " << start;
      }
    }
  }
}

TEST(FindNear, TakesTheParameterOfANameAlone) {
  Catalog catalog;
  for (const auto& [name, slot] : {std::pair("a", Slot::kParam), std::pair("a", Slot::kAdamMu), std::pair("b", Slot::kMaster)}) {
    Entry entry;
    entry.name = name;
    entry.slot = slot;
    catalog.entries.push_back(std::move(entry));
  }
  std::int32_t near = 2;
  EXPECT_EQ(FindNear(catalog, "a", &near), 0);
  EXPECT_EQ(FindNear(catalog, "b", &near), -1);
}

}  // namespace
}  // namespace crossdock
