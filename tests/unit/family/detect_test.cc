// SPDX-License-Identifier: Apache-2.0
#include "family/detect.h"

#include "result_matchers.h"

namespace crossdock::family {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<const FamilyFile*> All() {
  std::vector<const FamilyFile*> families;
  for (const FamilyFile& family : BuiltinFamilies()) families.push_back(&family);
  return families;
}

ModelConfig Config(std::string_view json) {
  const Result<Value> value = ParseJson(json);
  return {"hf", value ? *value : Value::MakeDict()};
}

TEST(DetectTest, ByArchitectureOrModelType) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile* qwen, DetectByConfig(Config(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "llama"})"), All()));
  EXPECT_EQ(qwen->name, "qwen3");
  ASSERT_OK_AND_ASSIGN(const FamilyFile* llama, DetectByConfig(Config(R"({"model_type": "llama"})"), All()));
  EXPECT_EQ(llama->name, "llama");
}

TEST(DetectTest, UnknownArchitecturesAreRefusedWithTheList) {
  EXPECT_THAT(DetectByConfig(Config(R"({"architectures": ["GPT2LMHeadModel"]})"), All()),
              IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("LlamaForCausalLM, MiniMaxM2ForCausalLM, MistralForCausalLM, MixtralForCausalLM"), HasSubstr("Qwen3ForCausalLM"))));
  EXPECT_THAT(DetectByConfig(Config("{}"), All()), IsError(ErrorCode::kUnsupported, HasSubstr("--rules")));
}

TEST(DetectTest, TheArchitectureCountsBeforeTheModelType) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile* kimi, DetectByConfig(Config(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"})"), All()));
  EXPECT_EQ(kimi->name, "deepseek_v3");
}

TEST(DetectTest, TwoMatchesAskForTheFamily) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile twin, ParseFamilyFile("family = \"twin\"\narchitectures = \"Qwen3ForCausalLM\"\ninclude = \"qwen3\"\n", "m"));
  ASSERT_OK_AND_ASSIGN(const FamilyFile when, ParseFamilyFile("family = \"when\"\narchitectures = \"Qwen3ForCausalLM\"\ninclude = \"qwen3\"\nwhen = \"special\"\n", "m"));
  std::vector<const FamilyFile*> families = All();
  families.push_back(&twin);
  EXPECT_THAT(DetectByConfig(Config(R"({"architectures": ["Qwen3ForCausalLM"]})"), families), IsError(ErrorCode::kUnsupported, HasSubstr("--family")));
  families.back() = &when;
  ASSERT_OK_AND_ASSIGN(const FamilyFile* plain, DetectByConfig(Config(R"({"architectures": ["Qwen3ForCausalLM"]})"), families));
  EXPECT_EQ(plain->name, "qwen3");
}

TEST(DetectTest, ByFactsOfAMegatronCheckpoint) {
  std::string notice;
  ASSERT_OK_AND_ASSIGN(const FamilyFile* llama, DetectByFacts({}, All(), &notice));
  EXPECT_EQ(llama->name, "llama");
  EXPECT_THAT(notice, HasSubstr("llama is assumed"));
  ASSERT_OK_AND_ASSIGN(const FamilyFile* qwen2, DetectByFacts({.qkv_bias = true}, All(), &notice));
  EXPECT_EQ(qwen2->name, "qwen2");
  ASSERT_OK_AND_ASSIGN(const FamilyFile* qwen3, DetectByFacts({.qk_layernorm = true}, All(), nullptr));
  EXPECT_EQ(qwen3->name, "qwen3");
  const auto name = [](const McoreFacts& facts) {
    const Result<const FamilyFile*> found = DetectByFacts(facts, All(), nullptr);
    return found ? (*found)->name : found.error().found;
  };
  EXPECT_EQ(name({.experts = true}), "mixtral");
  EXPECT_EQ(name({.qk_layernorm = true, .experts = true}), "qwen3_moe");
  EXPECT_EQ(name({.qkv_bias = true, .experts = true, .shared_gate = true, .shared_experts = true}), "qwen2_moe");
  EXPECT_EQ(name({.experts = true, .mla = true, .shared_experts = true}), "deepseek_v2");
  EXPECT_EQ(name({.experts = true, .mla = true, .expert_bias = true, .shared_experts = true}), "deepseek_v3");
  EXPECT_EQ(name({.qkv_bias = true, .vision = true}), "qwen2_5_vl");
  EXPECT_EQ(name({.qk_layernorm = true, .vision = true}), "qwen3_vl");
  EXPECT_EQ(name({.qk_layernorm = true, .experts = true, .vision = true}), "qwen3_vl_moe");
  EXPECT_THAT(name({.experts = true, .expert_bias = true}), HasSubstr("bias of the router"));
  EXPECT_THAT(name({.mla = true}), HasSubstr("multi-latent"));
  EXPECT_THAT(name({.qk_layernorm = true, .qkv_bias = true}), HasSubstr("q/k norms and qkv biases"));
}

}  // namespace
}  // namespace crossdock::family
