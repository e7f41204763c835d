// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/levels.h"

#include "result_matchers.h"
#include "tunix_samples.h"

namespace crossdock::dialects::tunix {
namespace {

using ::testing::HasSubstr;

/// The stored name of a path whose indices are marked: "opt_state.[0].count".
std::string Stored(const Levels& levels, const std::string& seen) {
  maxtext::KeyPath path;
  for (const Value& key : maxtext::PathTo({}, seen)) {
    const std::string& text = *key.as_string();
    path.push_back(text.front() == '[' ? Value(std::stoi(text.substr(1))) : key);
  }
  const auto found = StoredPath(levels, path);
  return found ? maxtext::ArrayName(*found) : "";
}

TEST(TunixLevels, RecordsAreReadAsTheyWereWritten) {
  Levels levels;
  levels.adapter = "base";
  levels.opt_state = {"inner_state", "1"};
  levels.moved = {{"0", "1"}};
  levels.schedule = "opt_state.count";
  levels.dropped["opt_state.hyperparams.learning_rate"] = {DType::kF32, {}, Value(0.5), {}};
  levels.dropped["model_params.rngs.key"] = {DType::kU32, {2}, Value::MakeList({Value(1), Value(2)}), Json(R"({"random_key_impl": "rbg"})")};
  Value metadata = Value::MakeDict();
  metadata.Set("crossdock", Value::MakeDict());
  EXPECT_THAT(LevelsIn(metadata), IsOk());
  EXPECT_FALSE(LevelsIn(metadata)->has_value());
  Value carried = Value::MakeDict();
  carried.Set("tunix_levels", ToValue(levels));
  metadata.Set("crossdock", carried);
  ASSERT_OK_AND_ASSIGN(const std::optional<Levels> read, LevelsIn(metadata));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(ToJson(ToValue(*read)), ToJson(ToValue(levels)));
  EXPECT_EQ(read->state_adapter, "") << "an own word where it differs";
}

TEST(TunixLevels, TheShortFormIsEnough) {
  ASSERT_OK_AND_ASSIGN(const Levels levels, LevelsFrom(Json(R"({"adapter": "base", "opt_state": "inner_state.1", "dropped": {"opt_state.count": {"dtype": "int32", "value": 7}}})")));
  EXPECT_EQ(Stored(levels, "params.params.decoder.norm.scale"), "model_params.base.decoder.norm.scale.value");
  EXPECT_EQ(Stored(levels, "nnx_aux.model.decoder.gate.bias"), "model_params.base.decoder.gate.bias.value");
  EXPECT_EQ(Stored(levels, "opt_state.[0].mu.params.decoder.norm.scale"), "optimizer_state.opt_state.inner_state.1.0.mu.base.decoder.norm.scale.value");
  EXPECT_EQ(Stored(levels, "opt_state.[0].count"), "optimizer_state.opt_state.inner_state.1.0.count.value");
  EXPECT_EQ(Stored(levels, "opt_state.[1]"), "");
  EXPECT_EQ(Stored(levels, "step"), "optimizer_state.step.value");
  EXPECT_EQ(Stored(levels, "other"), "");
  EXPECT_EQ(Describe(levels), "adapter base, a wrapper, chain 1");
}

TEST(TunixLevels, MuonOfEitherFormGoesBackToDictionaries) {
  Levels levels;
  EXPECT_EQ(Stored(levels, "opt_state.inner_states.muon.inner_state.[0].mu.params.decoder.w"), "optimizer_state.opt_state.inner_states.muon.inner_state.0.mu.decoder.w.value");
  EXPECT_EQ(Stored(levels, "opt_state.inner_states.muon.inner_state.0.mu.decoder.w"), "optimizer_state.opt_state.inner_states.muon.inner_state.0.mu.decoder.w.value");
  EXPECT_EQ(Stored(levels, "opt_state.inner_states.muon.inner_state.[1]"), "");
  EXPECT_EQ(Stored(levels, "opt_state.inner_states.muon.inner_state.3.count"), "optimizer_state.opt_state.inner_states.muon.inner_state.3.count.value");
  levels.schedule = "";
  EXPECT_EQ(Stored(levels, "opt_state.inner_states.muon.inner_state.3.count"), "");
}

TEST(TunixLevels, RefusesRecordsThatAreNone) {
  for (const char* text : {"[]", R"({"adapter": 1})", R"({"dropped": []})", R"({"dropped": {"a": {"dtype": "what", "value": 1}}})", R"({"dropped": {"a": {"dtype": "int32"}}})", R"({"moved": {"0": 1}})",
                           R"({"dropped": {"a": {"dtype": "int32", "value": 1, "shape": [1]}}})"}) {
    EXPECT_THAT(LevelsFrom(Json(text)), IsError(ErrorCode::kCorrupt, HasSubstr("tunix_levels"))) << text;
  }
}

}  // namespace
}  // namespace crossdock::dialects::tunix
