// SPDX-License-Identifier: Apache-2.0
#include "crossdock/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace crossdock {
namespace {

TEST(TypingErrors, CountsEachKindOnce) {
  EXPECT_EQ(TypingErrors("threads", "threads"), 0U);
  EXPECT_EQ(TypingErrors("thread", "threads"), 1U);
  EXPECT_EQ(TypingErrors("threeds", "threads"), 1U);
  EXPECT_EQ(TypingErrors("thraeds", "threads"), 1U);   // two neighbours exchanged
  EXPECT_EQ(TypingErrors("Max_Shard", "max-shard"), 0U);
  EXPECT_EQ(TypingErrors("", "abc"), 3U);
}

TEST(Nearest, ForgivesAsMuchAsTheWordIsLong) {
  constexpr std::array<std::string_view, 5> kKnown = {"tp", "pp", "megatron", "megatron-legacy", "tensor-model-parallel-size"};
  EXPECT_EQ(Nearest("megatorn", kKnown), "megatron");
  EXPECT_EQ(Nearest("megatron_legcy", kKnown), "megatron-legacy");
  EXPECT_EQ(Nearest("tensor-modl-paralel-siz", kKnown), "tensor-model-parallel-size");
  EXPECT_EQ(Nearest("tpp", kKnown), "tp");
  EXPECT_EQ(Nearest("xy", kKnown), "");           // no letter is kept
  EXPECT_EQ(Nearest("mogotrun", kKnown), "");     // three errors in eight letters
  EXPECT_EQ(Nearest(std::string(5000, 'm'), kKnown), "");
}

TEST(Nearest, IsSaidAsAQuestion) {
  constexpr std::array<std::string_view, 1> kKnown = {"convert"};
  EXPECT_EQ(DidYouMean("conver", kKnown), "did you mean `convert`?");
  EXPECT_EQ(DidYouMean("inspect", kKnown), "");
}

}  // namespace
}  // namespace crossdock
