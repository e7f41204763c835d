// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_towers.h"

#include "dialects/mcore/legacy_names.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

TEST(LegacyTowers, BlocksAreToldFromWhatHasNumbersOfItsOwn) {
  for (const std::string key : {"vision_model.decoder.layers.mlp.linear_fc1.bias", "vision_model.decoder.deepstack_merger_list.linear_fc1.bias",
                                "encoder_model.image_encoder.decoder.layers.self_attention.linear_qkv.weight", "encoder_model.image_encoder.encoder.layers.post_mlp_layerscale"}) {
    const std::optional<TowerBlock> block = FindTowerBlock(TowerModuleName(key, 12));
    ASSERT_TRUE(block.has_value()) << key;
    EXPECT_EQ(block->key, key);
    EXPECT_EQ(block->number, 12);
    EXPECT_FALSE(FindTowerBlock(key).has_value()) << key;
  }
  for (const char* name : {"visual.blocks.3.attn.qkv.weight", "encoder_model.image_encoder.deepstack_merger_list.0.linear_fc1.bias", "decoder.layers.3.mlp.linear_fc1.weight",
                           "language_model.decoder.layers.3.mlp.linear_fc1.weight", "vision_model.decoder.layers.3", "vision_model.decoder.layers.-1.mlp.linear_fc1.bias",
                           "vision_model.decoder.layers.99999999999999999999.mlp.linear_fc1.bias", "vision_model.merger.linear_fc1.weight"}) {
    EXPECT_FALSE(FindTowerBlock(name).has_value()) << name;
  }
}

TEST(LegacyTowers, CutsAreThoseOfItsOwnLayers) {
  const auto axis = [](std::string_view key) { const std::optional<Cut> cut = FindTowerCut(key); return cut ? cut->axis : -1; };
  EXPECT_EQ(axis("vision_model.merger.linear_fc1.weight"), 0);
  EXPECT_EQ(axis("vision_model.merger.linear_fc2.weight"), 1);
  EXPECT_EQ(axis("vision_model.merger.linear_fc2.bias"), -1);
  EXPECT_EQ(axis("vision_model.merger.patch_norm.weight"), -1);
  EXPECT_EQ(axis("vision_model.patch_embed.proj.weight"), -1);
  EXPECT_EQ(axis("encoder_model.image_encoder.decoder.layers.0.self_attention.linear_qkv.bias"), 0);
  EXPECT_EQ(axis("encoder_model.image_encoder.decoder.layers.0.self_attention.linear_proj.weight"), 1);
  EXPECT_EQ(axis("encoder_model.image_encoder.encoder.layers.0.self_attention.q_layernorm.weight"), 0);
  EXPECT_EQ(axis("encoder_model.text_encoder.word_embeddings.weight"), 0);
  EXPECT_EQ(axis("visual.blocks.0.linear_fc1.weight"), -1);   // transformers' module, whatever its parts are called
}

TEST(LegacyTowers, TheRanksFollowFromAFusedQkv) {
  EXPECT_EQ(TowerRanks({144, 48}, 4).value(), 1);
  EXPECT_EQ(TowerRanks({72, 48}, 4).value(), 2);
  EXPECT_EQ(TowerRanks({36, 48}, 4).value(), 4);
  EXPECT_THAT(TowerRanks({48, 48}, 4), IsError(ErrorCode::kCorrupt, HasSubstr("do not divide")));   // three ranks, of which four are no multiple
  EXPECT_THAT(TowerRanks({150, 48}, 4), IsError(ErrorCode::kCorrupt, HasSubstr("do not divide")));
  EXPECT_THAT(TowerRanks({144}, 4), IsError(ErrorCode::kCorrupt, HasSubstr("do not divide")));
  EXPECT_THAT(TowerRanks({}, 4), IsError(ErrorCode::kCorrupt, HasSubstr("do not divide")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
