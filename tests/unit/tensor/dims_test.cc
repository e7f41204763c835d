// SPDX-License-Identifier: Apache-2.0
#include "tensor/dims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "result_matchers.h"

namespace crossdock {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

Dims Of(const std::vector<std::int64_t>& values) { return Dims::FromSpan(values).value(); }

/// A Dims and the vector that it must equal after every step.
struct Twin {
  Dims dims;
  std::vector<std::int64_t> model;
};

class RandomSteps : public ::testing::TestWithParam<unsigned> {
 protected:
  std::size_t Below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  std::int64_t Value() { return static_cast<std::int64_t>(Below(1000)) - 500; }

  void Change(Twin& a, Twin& b) {
    const std::size_t size = a.model.size();
    switch (Below(9)) {
      case 0:
      case 1:
        if (size == kMaxRank) return;
        a.model.push_back(Value());
        a.dims.push_back(a.model.back());
        return;
      case 2: {
        if (size == kMaxRank) return;
        const std::size_t at = Below(size + 1);
        const std::int64_t value = Value();
        a.model.insert(a.model.begin() + static_cast<std::ptrdiff_t>(at), value);
        a.dims.insert(at, value);
        return;
      }
      case 3: {
        if (size == 0) return;
        const std::size_t at = Below(size);
        a.model.erase(a.model.begin() + static_cast<std::ptrdiff_t>(at));
        a.dims.erase(at);
        return;
      }
      case 4:
        if (size != 0) a.dims[size - 1] = a.model[size - 1] = Value();
        return;
      case 5:
        a = b;
        return;
      case 6: {
        const Twin& same = a;  // the compiler warns of a plain a = a
        a.dims = same.dims;
        return;
      }
      case 7:
        std::swap(a, b);
        return;
      default: {
        Twin other = std::move(a);
        EXPECT_EQ(a.dims.size(), 0U) << "moved from";  // NOLINT(bugprone-use-after-move): what a move leaves is said
        a.model.clear();
        Twin& same = other;
        other.dims = std::move(same.dims);
        (Below(2) == 0 ? a : b) = std::move(other);
        return;
      }
    }
  }

  std::mt19937 random_{GetParam()};
};

TEST_P(RandomSteps, GiveWhatAVectorGives) {
  std::vector<Twin> twins(4);
  for (int step = 0; step < 20'000; ++step) {
    Twin& a = twins[Below(twins.size())];
    Twin& b = twins[Below(twins.size())];
    if (&a == &b) continue;
    Change(a, b);
    for (const Twin* t : {&a, &b}) ASSERT_THAT(std::vector(t->dims.begin(), t->dims.end()), ElementsAreArray(t->model));
    ASSERT_EQ(a.dims == b.dims, a.model == b.model);
    const auto by_size = std::pair(a.model.size(), a.model) <=> std::pair(b.model.size(), b.model);
    ASSERT_TRUE((a.dims <=> b.dims) == by_size) << ToString(a.dims) << " against " << ToString(b.dims);
    if (!a.model.empty()) {
      ASSERT_EQ(a.dims.back(), a.model.back());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSteps, ::testing::Range(0U, 8U));

TEST(Dims, ACopyIsItsOwn) {
  for (std::size_t rank = 1; rank <= kMaxRank; ++rank) {
    const Dims original = Dims::Filled(rank, 7);
    Dims copy = original;
    copy[rank - 1] = 8;
    EXPECT_EQ(original, Dims::Filled(rank, 7));
    EXPECT_NE(copy, original);
  }
}

TEST(Dims, ComparesWhatWasLargeWithWhatNeverWas) {
  Dims shrunk = Of({1, 2, 3, 4, 5});
  shrunk.erase(4);
  EXPECT_EQ(shrunk, Of({1, 2, 3, 4}));
  EXPECT_EQ(ToString(shrunk), "[1, 2, 3, 4]");
}

TEST(Dims, RefusesMoreThanTheMostAxes) {
  EXPECT_THAT(Dims::FromSpan(std::vector<std::int64_t>(kMaxRank + 1, 1)),
              IsError(ErrorCode::kUnsupported, HasSubstr("a tensor has too many axes")));
}

}  // namespace
}  // namespace crossdock
