// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/known_args.h"

#include <gtest/gtest.h>

namespace crossdock::dialects::mcore {
namespace {

TEST(KnownArgs, AreMegatronsOwn) {
  for (const char* name : {"lr", "min_lr", "weight_decay", "use_distributed_optimizer", "padded_vocab_size", "seq_length"}) {
    EXPECT_TRUE(IsMegatronArgument(name)) << name;
  }
  for (const char* name : {"lrr", "", "l", "weight-decay", "lr min_lr"}) EXPECT_FALSE(IsMegatronArgument(name)) << name;
}

TEST(KnownArgs, TellTypingErrorsFromOtherWords) {
  EXPECT_EQ(NearestMegatronArgument("lrr"), "lr");
  EXPECT_EQ(NearestMegatronArgument("min-lr"), "min_lr");
  EXPECT_EQ(NearestMegatronArgument("weigth_decay"), "weight_decay");
  EXPECT_EQ(NearestMegatronArgument("my_own_setting"), "");
  EXPECT_EQ(NearestMegatronArgument("xy"), "");
}

}  // namespace
}  // namespace crossdock::dialects::mcore
