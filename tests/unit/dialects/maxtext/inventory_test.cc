// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/inventory.h"

#include "maxtext_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::maxtext {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(MaxTextInventory, SortsParametersStatesAndCounters) {
  ASSERT_OK_AND_ASSIGN(const Inventory inventory, TakeInventory(Source(Golden("qwen3_scanned_muon_linen")), false));
  EXPECT_TRUE(inventory.scanned);
  EXPECT_TRUE(inventory.has_states);
  EXPECT_EQ(inventory.counters.muon_count, 5);
  const SlotEntries& query = inventory.tensors.at("decoder.layers.self_attention.query.kernel");
  EXPECT_GE(query[static_cast<std::size_t>(Slot::kMuonMu)], 0);
  EXPECT_EQ(query[static_cast<std::size_t>(Slot::kAdamMu)], -1);
}

TEST(MaxTextInventory, LeavesRandomGeneratorsAndWrappersOutByName) {
  Catalog source = Source(Golden("qwen3_scanned_adamw_nnx"));
  for (const char* name : {"nnx_aux.model.decoder.rngs.params.key", "opt_state.losses"}) {
    Entry entry;
    entry.name = name;
    entry.shape = {4};
    source.entries.push_back(entry);
  }
  source.SortEntries();
  ASSERT_OK_AND_ASSIGN(const Inventory inventory, TakeInventory(source, false));
  std::vector<std::string> left;
  for (const LeftOut& one : inventory.left_out) left.push_back(one.name);
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("nnx_aux.model.decoder.rngs.params.key", "opt_state.losses"));
  EXPECT_TRUE(inventory.unknown.empty());
}

TEST(MaxTextInventory, CountsLayersOfPrediction) {
  for (const auto& [golden, layers] : {std::pair("deepseek_v3_mtp_adamw_nnx", 2), std::pair("deepseek_v3_scanned_adamw_nnx", 0)}) {
    ASSERT_OK_AND_ASSIGN(const Inventory inventory, TakeInventory(Source(Golden(golden)), false));
    EXPECT_EQ(inventory.PredictionLayers(), layers) << golden;
  }
}

TEST(MaxTextInventory, TheCounterOfAWrapperIsNotAdams) {
  Catalog source = Source(Golden("qwen3_scanned_adamw_nnx"));
  Value scalars = Value::MakeDict();
  for (const auto& [name, value] : source.objects.at("scalars").as_dict()->items) {
    const std::string& text = *name.as_string();
    scalars.Set(text.starts_with("opt_state.") ? "opt_state.inner_state." + text.substr(10) : text, value);
  }
  scalars.Set("opt_state.count", Json(R"({"dtype": "I32", "shape": [], "values": [99]})"));
  source.objects["scalars"] = scalars;
  for (Entry& entry : source.entries) {
    if (entry.name.starts_with("opt_state.")) entry.name = "opt_state.inner_state." + entry.name.substr(10);
  }
  source.SortEntries();
  ASSERT_OK_AND_ASSIGN(const Inventory inventory, TakeInventory(source, false));
  EXPECT_EQ(inventory.counters.adam_count, 5);
}

TEST(MaxTextInventory, RefusesBrokenCountersAndTellsOfMixedLayers) {
  Catalog source = Source(Golden("qwen3_scanned_adamw_nnx"));
  source.objects["scalars"].Set("step", Json(R"({"dtype": "I32", "shape": [], "values": [-1]})"));
  EXPECT_THAT(TakeInventory(source, false), IsError(ErrorCode::kCorrupt, HasSubstr("step")));
  source = Source(Golden("qwen3_scanned_adamw_nnx"));
  source.entries.back().name = "params.params.decoder.layers_3.mlp.wo.kernel";
  source.SortEntries();
  ASSERT_OK_AND_ASSIGN(const Inventory mixed, TakeInventory(source, false));
  EXPECT_TRUE(mixed.scanned);
  EXPECT_THAT(mixed.mixed, HasSubstr("layers_3"));  // only the family can say whether that is right
  EXPECT_THAT(TakeInventory(Catalog{}, false), IsError(ErrorCode::kIncomplete, HasSubstr("no arrays")));
}

TEST(MaxTextInventory, NamesCountWhereTheMetadataSaysOtherwise) {
  Catalog source = Source(Golden("qwen3_unscanned_adamw_nnx"));
  source.objects["custom_metadata"].Set("scan_layers", Value(true));
  source.objects["scalars"].Set("opt_state.2.count", Json(R"({"dtype": "I32", "shape": [], "values": [6]})"));
  ASSERT_OK_AND_ASSIGN(const Inventory inventory, TakeInventory(source, false));
  EXPECT_FALSE(inventory.scanned);
  EXPECT_THAT(inventory.notices, Contains(HasSubstr("the names count")));
  EXPECT_THAT(inventory.notices, Contains(HasSubstr("schedule counts 6")));
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
