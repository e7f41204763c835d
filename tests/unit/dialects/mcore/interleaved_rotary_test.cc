// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/interleaved_rotary.h"

#include <algorithm>

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

Value Interleaved() {
  Value args = TinyArgs();
  args.Set("rotary_interleaved", Value(true));
  return args;
}

const HubTensor& Find(const HubState& hub, std::string_view name, Slot slot) {
  return *std::ranges::find_if(hub.tensors, [&](const HubTensor& t) { return t.name == name && t.slot == slot; });
}

TEST(InterleavedRotaryTest, RowsOfQAndKGoEvenFirstInEverySlot) {
  ASSERT_OK_AND_ASSIGN(const HubState plain, ReadHub(McoreSource("qwen3", TinyArgs(), true, false, 56, true), {}));
  ASSERT_OK_AND_ASSIGN(const HubState undone, ReadHub(McoreSource("qwen3", Interleaved(), true, false, 56, true), {}));
  constexpr std::int64_t kOrder[] = {0, 2, 1, 3};  // user case B03: heads of 4
  for (const Slot slot : {Slot::kParam, Slot::kMaster, Slot::kAdamMu, Slot::kAdamNu}) {
    for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "q_norm.weight", "k_norm.weight"}) {
      const std::string full = std::string("model.layers.1.self_attn.") + name;
      const auto before = Elements(Find(plain, full, slot).expr);
      const auto after = Elements(Find(undone, full, slot).expr);
      const bool moved = name[0] == 'q' || name[0] == 'k';
      ASSERT_EQ(before.size(), after.size());
      for (const auto& [at, from] : after) {
        Dims stored = at;
        if (moved) stored[0] = at[0] / 4 * 4 + kOrder[at[0] % 4];
        EXPECT_EQ(from, before.at(stored)) << full << " " << ToString(at);
      }
    }
  }
  EXPECT_EQ(undone.config.values.GetBool("rotary_interleaved"), false);
  EXPECT_THAT(undone.notices, ::testing::Contains(HasSubstr("rotary_interleaved")));
  ASSERT_OK_AND_ASSIGN(const TargetState target, WriteHub(undone, WithAdamSettings()));
  EXPECT_EQ(target.catalog.objects.at("common").GetBool("args.rotary_interleaved"), false);
}

TEST(InterleavedRotaryTest, PartlyRotatedHeadsAreRefused) {
  Value args = Interleaved();
  args.Set("rotary_percent", Value(0.5));
  EXPECT_THAT(ReadHub(McoreSource("llama", args), {}), IsError(ErrorCode::kUnsupported, HasSubstr("rotary_percent")));
}

TEST(InterleavedRotaryTest, OddHeadsAreCorrupt) {
  std::vector<HubTensor> tensors = {{"model.layers.0.self_attn.q_proj.weight", Slot::kParam, DType::kF32, {12, 2}, expr::Leaf(0, DType::kF32, {12, 2})}};
  EXPECT_THAT(UndoInterleaving(Interleaved(), &tensors), IsError(ErrorCode::kCorrupt, HasSubstr("multiple of 8 rows")));
}

}  // namespace
}  // namespace crossdock::dialects::mcore
