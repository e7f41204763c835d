// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/global_view.h"

#include <algorithm>

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

/// A checkpoint whose Adam state an old distributed optimizer wrote under TP2: axis 0 of every matrix in two blocks.
Catalog FlattenedSource(const std::string& prefix) {
  Catalog catalog = McoreSource("llama", TinyArgs(), true, false, 56, true);
  for (Entry& entry : catalog.entries) {
    if (!entry.name.starts_with("optimizer.state.")) continue;
    const Shape logical = entry.shape;
    const std::size_t cut = logical.size() > 2 ? 1 : 0;
    const bool stacked = entry.name.find("decoder.layers.") != std::string::npos;
    Shape stored = Dims::Filled(logical.size(), 1);
    if (stacked) stored[0] = logical[0];
    if (logical.size() >= (stacked ? 3U : 2U)) stored[cut] = 2;
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < logical.size(); ++i) elements *= logical[i] / stored[i];
    stored.push_back(elements);
    if (const std::size_t at = entry.name.find(".param."); at != std::string::npos) entry.name.replace(at, 7, ".fp32_param.");
    entry.name = prefix + entry.name;
    entry.shape = stored;
    catalog.flattened_entries.push_back(entry.name);
  }
  catalog.SortEntries();
  std::ranges::sort(catalog.flattened_entries);
  return catalog;
}

TEST(GlobalViewTest, APlainCheckpointIsItsOwnView) {
  const Catalog source = McoreSource("llama", TinyArgs(), true, false, 56, true);
  ASSERT_OK_AND_ASSIGN(const GlobalView view, MakeGlobalView(source, {}));
  EXPECT_TRUE(view.identity);
  EXPECT_EQ(&view.Seen(source), &source);
  const expr::Expr leaf = expr::Leaf(3, DType::kF32, {2});
  ASSERT_OK_AND_ASSIGN(const expr::Expr same, view.OverSource(leaf));
  EXPECT_EQ(same, leaf);
}

TEST(GlobalViewTest, FlattenedShardsAreSeenWholeUnderTheNamesOfToday) {
  for (const char* prefix : {"", "chained_0."}) {
    const Catalog source = FlattenedSource(prefix);
    ASSERT_OK_AND_ASSIGN(const GlobalView view, MakeGlobalView(source, {}));
    ASSERT_FALSE(view.identity);
    const Catalog plain = McoreSource("llama", TinyArgs(), true, false, 56, true);
    ASSERT_EQ(view.catalog.entries.size(), plain.entries.size());
    for (std::size_t i = 0; i < plain.entries.size(); ++i) {
      EXPECT_EQ(view.catalog.entries[i].name, plain.entries[i].name);
      EXPECT_EQ(view.catalog.entries[i].shape, plain.entries[i].shape);
      EXPECT_EQ(view.exprs[i]->shape, plain.entries[i].shape);
    }
    EXPECT_EQ(view.catalog.objects.at("common").GetString("content_metadata.distrib_optim_sharding_type"), "fully_reshardable");
    EXPECT_EQ(view.catalog.objects.at("common").GetString("optimizer.param_state_sharding_type"), "fully_reshardable");

    ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(view.catalog, {}));
    EXPECT_EQ(hub.optimizer, "adam");
    const auto up = std::find_if(hub.tensors.begin(), hub.tensors.end(), [](const HubTensor& t) {
      return t.name == "model.layers.2.mlp.up_proj.weight" && t.slot == Slot::kMaster;
    });
    ASSERT_NE(up, hub.tensors.end());
    ASSERT_OK_AND_ASSIGN(const expr::Expr stored, view.OverSource(up->expr));
    const auto [leaf, at] = Elements(stored).at({3, 5});
    EXPECT_THAT(source.entries[static_cast<std::size_t>(leaf)].name, HasSubstr("fp32_param.decoder.layers.mlp.linear_fc1.weight"));
    EXPECT_EQ(at, (Dims{2, 1, 0, 3 * 16 + 5}));  // [3, 48, 16] in blocks [1, 24, 16]: up is the second block of layer 2
  }
}

TEST(GlobalViewTest, StateThatIsLeftBehindIsNotPutTogether) {
  Catalog source = FlattenedSource("");
  ViewOptions without;
  without.no_optim = true;
  ASSERT_OK_AND_ASSIGN(const GlobalView view, MakeGlobalView(source, without));
  EXPECT_TRUE(view.identity);
  source.entries[static_cast<std::size_t>(source.Find("optimizer.state.exp_avg.output_layer.weight"))].shape = {5, 1, 100};
  EXPECT_THAT(MakeGlobalView(source, {}), IsError(ErrorCode::kCorrupt, HasSubstr("no grid of blocks")));
  std::erase_if(source.entries, [](const Entry& e) { return e.name == "output_layer.weight"; });
  EXPECT_THAT(MakeGlobalView(source, {}), IsError(ErrorCode::kUnsupported, HasSubstr("belongs to no stored parameter")));
}

TEST(GlobalViewTest, TwoTensorsOfOneMeaningAreRefused) {
  Catalog source = FlattenedSource("");
  AddEntry(&source, "optimizer.state.param.output_layer.weight", DType::kF32, {56, 16});
  source.SortEntries();
  EXPECT_THAT(MakeGlobalView(source, {}), IsError(ErrorCode::kCorrupt, HasSubstr("two tensors mean the same")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
