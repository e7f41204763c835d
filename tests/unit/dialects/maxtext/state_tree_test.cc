// SPDX-License-Identifier: Apache-2.0
#include "dialects/maxtext/state_tree.h"

#include <gtest/gtest.h>

namespace crossdock::dialects::maxtext {
namespace {

using Kind = TreeKey::Kind;

TEST(StateTree, ReadsWhatItWrites) {
  for (const StateForm form : {StateForm{OptimizerKind::kAdamW}, StateForm{OptimizerKind::kAdamPax}, StateForm{OptimizerKind::kMuon, false}, StateForm{OptimizerKind::kMuon, true}}) {
    for (const Slot slot : {Slot::kAdamMu, Slot::kAdamNu, Slot::kMuonMu}) {
      if (slot == Slot::kMuonMu && form.kind != OptimizerKind::kMuon) continue;
      const TreeKey key = ParseTreeKey(ArrayName(StatePath(form, slot, "decoder.layers_0.mlp.wi_0.kernel")));
      EXPECT_EQ(key.kind, Kind::kState);
      EXPECT_EQ(key.slot, slot);
      EXPECT_EQ(key.name, "decoder.layers_0.mlp.wi_0.kernel");
    }
    for (const bool muon : {false, true}) {
      if (muon && form.kind != OptimizerKind::kMuon) continue;
      const CounterPaths paths = CountersOf(form, muon);
      const TreeKey count = ParseTreeKey(ArrayName(paths.count));
      EXPECT_EQ(count.kind, Kind::kCount);
      EXPECT_EQ(count.muon, muon);
      EXPECT_FALSE(count.schedule);
      if (!paths.schedule.empty()) {
        EXPECT_TRUE(ParseTreeKey(ArrayName(paths.schedule)).schedule);
      }
    }
  }
}

TEST(StateTree, KnowsWrappersAndWhatIsNone) {
  struct Case {
    const char* name;
    Kind kind;
    bool wrapper = false, schedule = false;
  };
  for (const Case& one : {Case{"step", Kind::kStep}, Case{"params.params.token_embedder.embedding", Kind::kParam},
                          Case{"params.MoEBiasVar.decoder.moe_layers.gate.bias", Kind::kVariable}, Case{"nnx_aux.model.decoder.moe_layers.gate.bias", Kind::kVariable},
                          Case{"nnx_aux.model.decoder.layers.rngs.params.key", Kind::kRandom}, Case{"opt_state.count", Kind::kCount, true},
                          Case{"opt_state.inner_state.0.count", Kind::kCount}, Case{"opt_state.1.2.count", Kind::kCount, false, true},
                          Case{"opt_state.losses", Kind::kOther}, Case{"opt_state.inner_states.trainable.inner_state.0.mu.params.a", Kind::kState},
                          Case{"opt_state.inner_states.muon.inner_state.0.ns_coeffs", Kind::kCoefficients}, Case{"params.decoder.a", Kind::kOther}, Case{"other", Kind::kOther}}) {
    const TreeKey key = ParseTreeKey(one.name);
    EXPECT_EQ(key.kind, one.kind) << one.name;
    EXPECT_EQ(key.wrapper, one.wrapper) << one.name;
    EXPECT_EQ(key.schedule, one.schedule) << one.name;
  }
}

}  // namespace
}  // namespace crossdock::dialects::maxtext
