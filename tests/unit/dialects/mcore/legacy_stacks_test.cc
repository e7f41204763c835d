// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_stacks.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

WholeParameter Param(int leaf, Shape shape) {
  WholeParameter whole;
  whole.slots[0] = expr::Leaf(leaf, DType::kBF16, std::move(shape));
  return whole;
}

TEST(LegacyStacks, AlikeLayersLieAlongAnAxisAndOthersAreNumbered) {
  WholeParameters whole;
  whole["language_model.decoder.layers.0.mlp.linear_fc2.weight"] = Param(0, {4, 6});
  whole["language_model.decoder.layers.1.mlp.linear_fc2.weight"] = Param(1, {4, 6});
  whole["language_model.embedding.word_embeddings.weight"] = Param(2, {8, 4});
  GlobalView alike;
  ASSERT_THAT(StackLayersOf(whole, {2, false}, &alike), IsOk());
  const Entry* stack = FindEntry(alike.catalog, "language_model.decoder.layers.mlp.linear_fc2.weight");
  ASSERT_NE(stack, nullptr);
  EXPECT_EQ(stack->shape, (Shape{2, 4, 6}));
  EXPECT_EQ(alike.catalog.entries.size(), 2U);
  GlobalView numbered;
  ASSERT_THAT(StackLayersOf(whole, {2, true}, &numbered), IsOk());
  EXPECT_EQ(numbered.catalog.entries.size(), 3U);
  whole["language_model.decoder.layers.1.mlp.linear_fc2.weight"] = Param(1, {4, 5});
  GlobalView unlike;
  ASSERT_THAT(StackLayersOf(whole, {2, false}, &unlike), IsOk());
  EXPECT_NE(FindEntry(unlike.catalog, "language_model.decoder.layers.1.mlp.linear_fc2.weight"), nullptr);
  GlobalView beyond;
  EXPECT_THAT(StackLayersOf(whole, {1, false}, &beyond), IsError(ErrorCode::kCorrupt, HasSubstr("beyond the model's")));
}

TEST(LegacyStacks, BlocksOfATowerAreOneStackAlways) {
  WholeParameters whole;
  for (int block = 0; block < 3; ++block) whole["vision_model.decoder.layers." + std::to_string(block) + ".mlp.linear_fc1.bias"] = Param(block, {5});
  GlobalView view;
  ASSERT_THAT(StackLayersOf(whole, {0, true}, &view), IsOk());
  ASSERT_EQ(view.catalog.entries.size(), 1U);
  EXPECT_EQ(view.catalog.entries[0].name, "vision_model.decoder.layers.mlp.linear_fc1.bias");
  EXPECT_EQ(view.catalog.entries[0].shape, (Shape{3, 5}));
  WholeParameters gap = whole;
  gap.erase("vision_model.decoder.layers.1.mlp.linear_fc1.bias");
  gap["vision_model.pos_embed.weight"] = Param(3, {4, 4});
  GlobalView none;
  EXPECT_THAT(StackLayersOf(gap, {0, true}, &none), IsError(ErrorCode::kCorrupt, HasSubstr("not numbered from 0")));
  whole["vision_model.decoder.layers.1.mlp.linear_fc1.bias"] = Param(1, {6});
  EXPECT_THAT(StackLayersOf(whole, {0, true}, &none), IsError(ErrorCode::kCorrupt, HasSubstr("not alike")));
  whole["vision_model.decoder.layers.70000000.mlp.linear_fc1.bias"] = Param(1, {5});
  EXPECT_THAT(StackLayersOf(whole, {0, true}, &none), IsError(ErrorCode::kCorrupt, HasSubstr("beyond all of them")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
