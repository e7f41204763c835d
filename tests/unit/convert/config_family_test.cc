// SPDX-License-Identifier: Apache-2.0
#include "convert/config_family.h"

#include "convert/demo_model.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;

Value Config(const char* architecture) {
  Value config = Value::MakeDict();
  config.Set("architectures", Value::MakeList({Value(architecture)}));
  return config;
}

Template Of(const char* architecture) {
  Template reference;
  reference.dir = "/template";
  reference.config = family::ModelConfig{"hf", Config(architecture)};
  return reference;
}

TEST(ConfigFamily, NamesTheFamilyOfAConfiguration) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  EXPECT_EQ(FamilyOfConfig(Config("Qwen3ForCausalLM"), model.source.hub), "qwen3");
  EXPECT_EQ(FamilyOfConfig(Config("LlamaForCausalLM"), model.source.hub), "llama");
  EXPECT_EQ(FamilyOfConfig(Config("OwnForCausalLM"), model.source.hub), "");
}

TEST(ConfigFamily, RefusesATemplateOfAnotherFamily) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  EXPECT_THAT(CheckTemplateFamily(Of("Qwen3ForCausalLM"), model.source.hub, false), IsOk());
  for (const bool chosen : {false, true}) {
    EXPECT_THAT(CheckTemplateFamily(Of("LlamaForCausalLM"), model.source.hub, chosen),
                IsError(ErrorCode::kUsage, HasSubstr("the template is a llama, the source a qwen3")));
  }
}

TEST(ConfigFamily, TakesAnUnknownArchitectureOnTheUsersWord) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  EXPECT_THAT(CheckTemplateFamily(Of("OwnForCausalLM"), model.source.hub, true), IsOk());
  EXPECT_THAT(CheckTemplateFamily(Of("OwnForCausalLM"), model.source.hub, false), IsError(ErrorCode::kUsage, HasSubstr("--family")));
}

TEST(ConfigFamily, ReadsTheResultsOwnConfiguration) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  Catalog result;
  EXPECT_THAT(CheckResultFamily(result, model.source.hub, false), IsOk());
  result.objects["config.json"] = Config("Qwen3ForCausalLM");
  EXPECT_THAT(CheckResultFamily(result, model.source.hub, false), IsOk());
  result.objects["config.json"] = Config("LlamaForCausalLM");
  EXPECT_THAT(CheckResultFamily(result, model.source.hub, false), IsError(ErrorCode::kCorrupt, HasSubstr("found llama")));
}

}  // namespace
}  // namespace crossdock::convert
