// SPDX-License-Identifier: Apache-2.0
#include "convert/comparison.h"

#include "convert/demo_model.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

dialects::HubState WithConfig(const char* json) {
  dialects::HubState hub;
  const Result<Value> value = ParseJson(json);
  EXPECT_THAT(value, IsOk());
  hub.config = {"hf", *value};
  return hub;
}

std::vector<std::string> Keys(const char* a, const char* b) {
  const auto differences = CompareConfigs(WithConfig(a), WithConfig(b));
  EXPECT_THAT(differences, IsOk());
  std::vector<std::string> keys;
  for (const verify::ConfigDifference& d : *differences) keys.push_back(d.key);
  return keys;
}

TEST(Comparison, OrdersConfigDifferencesByConsequence) {
  EXPECT_THAT(Keys(R"({"eos_token_id": 1, "own": 1, "rope_theta": 1e4})", R"({"eos_token_id": 2, "own": 2, "rope_theta": 1e6})"),
              ElementsAre("rope_theta", "eos_token_id", "own"));
}

TEST(Comparison, KnowsSpellingsThatMeanTheSame) {
  EXPECT_THAT(Keys(R"({"rope_theta": 10000, "torch_dtype": "bfloat16", "sliding_window": null, "transformers_version": "4"})",
                   R"({"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "dtype": "bfloat16"})"),
              IsEmpty());
  EXPECT_THAT(Keys(R"({"rope_theta": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})",
                   R"({"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}})"),
              ElementsAre("rope_scaling"));
}

TEST(Comparison, TakesSilenceForTheDefault) {
  const char* silent = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "layer_types": ["full_attention"]})";
  const char* spoken = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
                           "rope_theta": 10000, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu"})";
  EXPECT_THAT(Keys(silent, spoken), IsEmpty());
  EXPECT_THAT(Keys(silent, R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "mlp_bias": true})"),
              ElementsAre("head_dim", "mlp_bias"));
}

TEST(Comparison, ComparesTokenizersByBytes) {
  ASSERT_OK_AND_ASSIGN(const DemoModel a, MakeDemoModel());
  ASSERT_OK_AND_ASSIGN(DemoModel b, MakeDemoModel());
  ASSERT_OK_AND_ASSIGN(const auto same, CompareTokenizers(a.source, b.source));
  EXPECT_THAT(same, IsEmpty());
  for (SideFile& file : b.source.hub.side_files) {
    if (file.path == "tokenizer.json") *file.bytes += "\n";
    if (file.path == "tokenizer_config.json") file.path = "vocab.txt";
  }
  ASSERT_OK_AND_ASSIGN(const auto other, CompareTokenizers(a.source, b.source));
  EXPECT_THAT(other, ElementsAre("tokenizer.json: other bytes", "tokenizer_config.json: only in A", "vocab.txt: only in B"));
}

TEST(Comparison, ReportsInTextJsonAndRemarks) {
  verify::Comparison comparison;
  comparison.passed = false;
  comparison.worst = {{"model.norm.weight", 0.5, 19, 0, {4, 6}}, {"scalar", 0.25, 0, 0, {}}};
  comparison.total.num_different = 1;
  for (int i = 0; i < 4; ++i) comparison.dtype_mismatches.push_back(std::string(1, static_cast<char>('a' + i)) + ": F32 against BF16");
  comparison.missing_keys = {"lm_head.weight"};
  const Report report = ComparisonReport(comparison, {"a notice"});
  EXPECT_FALSE(report.equal);
  EXPECT_THAT(report.text, HasSubstr("DIFFERENT\n"));
  EXPECT_THAT(report.text, HasSubstr("missing in B:\n  lm_head.weight\n"));
  EXPECT_THAT(report.remarks, ElementsAre("[DIFF] model.norm.weight: 0.5 at [3, 1]", "[DIFF] scalar: 0.25 at element 0"));
  EXPECT_THAT(report.text, HasSubstr("other dtype:\n  4 tensors: F32 against BF16\n"));
  EXPECT_THAT(report.text, HasSubstr("different: not identical"));
  EXPECT_THAT(report.text, HasSubstr("--dtype D --verify"));
  EXPECT_THAT(ParseJson(report.json), IsOk());
  comparison.passed = true;
  comparison.config_differences = {{"rope_theta", "1", "2", 2}};
  const Report other = ComparisonReport(comparison, {});
  EXPECT_FALSE(other.equal);
  EXPECT_TRUE(other.text.starts_with("DIFFERENT: equal tensors, but the configuration changes the output\n")) << other.text;
  EXPECT_THAT(other.json, HasSubstr("\"passed\": false"));
  comparison.config_differences = {{"eos_token_id", "1", "2", 1}};
  EXPECT_TRUE(ComparisonReport(comparison, {}).equal);
}

}  // namespace
}  // namespace crossdock::convert
