// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/config_check.h"

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  std::string_view name;
  std::string_view json;
  std::string_view key, expected, found;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
class ConfigCheckRefuses : public ::testing::TestWithParam<Case> {};

TEST_P(ConfigCheckRefuses, NamesFileKeyExpectedAndFound) {
  const Case& c = GetParam();
  EXPECT_THAT(CheckConfigFields(Json(c.json), "m/config.json"),
              IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("`" + std::string(c.key) + "`"), HasSubstr("m/config.json"),
                                                 HasSubstr("expected " + std::string(c.expected)), HasSubstr("found " + std::string(c.found)))));
}

INSTANTIATE_TEST_SUITE_P(
    Table, ConfigCheckRefuses,
    ::testing::Values(Case{"NegativeEpsilon", R"({"rms_norm_eps": -1e-06})", "rms_norm_eps", "a number of at least 0", "-1e-06"},
                      Case{"EpsilonAsText", R"({"rms_norm_eps": "1e-06"})", "rms_norm_eps", "a number of at least 0", R"("1e-06")"},
                      Case{"ThetaOfZero", R"({"rope_theta": 0})", "rope_theta", "a number above 0", "0"},
                      Case{"ThetaAsList", R"({"rope_parameters": {"rope_theta": [1]}})", "rope_parameters.rope_theta", "a number above 0", "["},
                      Case{"ScalingAsNumber", R"({"rope_scaling": 8})", "rope_scaling", "an object", "8"},
                      Case{"FactorAsText", R"({"rope_scaling": {"factor": "8"}})", "rope_scaling.factor", "a number above 0", R"("8")"},
                      Case{"HalfAPosition", R"({"max_position_embeddings": 0.5})", "max_position_embeddings", "a whole number", "0.5"},
                      Case{"TiedAsText", R"({"tie_word_embeddings": "false"})", "tie_word_embeddings", "true or false", R"("false")"},
                      Case{"WholeTurn", R"({"partial_rotary_factor": 2})", "partial_rotary_factor", "a number above 0 and at most 1", "2"},
                      Case{"Activation", R"({"hidden_act": ["silu"]})", "hidden_act", "a text", "["}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(ConfigCheck, TakesWhatReleasedModelsSay) {
  EXPECT_THAT(CheckConfigFields(TinyConfig(), "config.json"), IsOk());
  EXPECT_THAT(CheckConfigFields(Json(R"({"rope_theta": 500000, "sliding_window": null, "rope_scaling": {"factor": 8.0, "rope_type": "llama3",
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "max_window_layers": 28})"), "config.json"), IsOk());
}

TEST(ConfigCheck, StopsTheReader) {
  Catalog model = TinyModel();
  Value config = TinyConfig();
  config.Set("rms_norm_eps", Value(-1.0));
  model.objects["config.json"] = config;
  EXPECT_THAT(ReadHub(model, {}), IsError(ErrorCode::kCorrupt, HasSubstr("rms_norm_eps")));
}

}  // namespace
}  // namespace crossdock::dialects::hf
