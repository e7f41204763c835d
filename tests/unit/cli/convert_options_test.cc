// SPDX-License-Identifier: Apache-2.0
#include "cli/convert_options.h"

#include <fmt/format.h>

#include "result_matchers.h"

namespace crossdock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

Machine FakeMachine() {
  Machine machine;
  machine.environment = [](const char* name) -> const char* { return std::string_view(name) == "HF_HOME" ? "/cache" : nullptr; };
  machine.exists = [](const std::string& path) { return path == "/cache/hub/models--org--model" || path == "folder"; };
  return machine;
}

Result<ConvertOptions> Build(const std::vector<std::string>& args) {
  const Machine machine = FakeMachine();
  CROSSDOCK_ASSIGN_OR_RETURN(const Words words, SettleWords(args, machine.exists));
  CROSSDOCK_ASSIGN_OR_RETURN(const Request request, ParseWords(words, machine.environment));
  return BuildConvertOptions(request, machine);
}

struct EndsCase {
  std::string_view name;
  std::vector<std::string> args;
  std::string source, target, to, hf_template;
};
void PrintTo(const EndsCase& c, std::ostream* out) { *out << c.name; }
class ConvertEnds : public ::testing::TestWithParam<EndsCase> {};

TEST_P(ConvertEnds, AreWhoTheyShouldBe) {
  std::vector<std::string> args = {"convert"};
  args.insert(args.end(), GetParam().args.begin(), GetParam().args.end());
  ASSERT_OK_AND_ASSIGN(const ConvertOptions options, Build(args));
  EXPECT_EQ(options.source, GetParam().source);
  EXPECT_EQ(options.target, GetParam().target);
  EXPECT_EQ(options.to, GetParam().to);
  EXPECT_EQ(options.hf_template.value_or(""), GetParam().hf_template);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ConvertEnds,
    ::testing::Values(
        EndsCase{"Positionals", {"a", "b", "--to", "hf"}, "a", "b", "hf", ""},
        EndsCase{"AsOptions", {"--load-dir", "a", "--save-dir", "b", "--to=hf"}, "a", "b", "hf", ""},
        EndsCase{"TargetOptionAndPositional", {"--output", "b", "a", "--to", "hf"}, "a", "b", "hf", ""},
        EndsCase{"BridgeImport", {"--hf-model", "m", "--megatron-path", "p", "--to", "megatron"}, "m", "p", "megatron", ""},
        EndsCase{"BridgeExport", {"--hf-model", "m", "--megatron-path", "p", "--hf-path", "h", "--to", "hf"}, "p", "h", "hf", "m"},
        EndsCase{"HfPathAsSource", {"--hf-path", "h", "--megatron-path", "p", "--to", "megatron"}, "h", "p", "megatron", ""},
        EndsCase{"ModelAndTarget", {"--hf-model", "m", "t", "--to", "megatron"}, "m", "t", "megatron", ""},
        EndsCase{"ModelIsTheTemplate", {"s", "t", "--hf-model", "m", "--to", "hf"}, "s", "t", "hf", "m"},
        EndsCase{"Saver", {"s", "t", "--saver", "core"}, "s", "t", "megatron", ""},
        EndsCase{"SaverHf", {"s", "t", "--saver", "llama_mistral"}, "s", "t", "hf", ""},
        EndsCase{"HubId", {"org/model", "t", "--to", "megatron"}, "/cache/hub/models--org--model", "t", "megatron", ""},
        EndsCase{"SaverAndToThatAgree", {"s", "t", "--saver", "mcore", "--to", "megatron"}, "s", "t", "megatron", ""},
        EndsCase{"PathInAFolderThatExists", {"folder/other", "t", "--to", "megatron"}, "folder/other", "t", "megatron", ""}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(ConvertOptionsOf, ReadsValues) {
  ASSERT_OK_AND_ASSIGN(const ConvertOptions o,
                       Build({"convert", "a", "b", "--to", "megatron", "--tp", "2", "--pp", "2", "--pipeline-layers", "3,1", "--memory",
                              "64MiB", "--set", "lr=1e-3", "--torch_dtype", "bfloat16", "--bf16", "--allow", "inexact", "--step", "7"}));
  EXPECT_EQ(o.layout.tp, 2);
  EXPECT_TRUE(o.layout.given);
  EXPECT_THAT(o.layout.pipeline_layers, ElementsAre(3, 1));
  EXPECT_EQ(o.memory, 64 << 20);
  EXPECT_EQ(o.dtype, "bf16");
  EXPECT_EQ(o.step, (StepChoice{7, false}));
  EXPECT_THAT(o.set_args, ElementsAre(std::pair<std::string, std::string>("lr", "1e-3")));
}

TEST(ConvertOptionsOf, SaysThatAModelIsNotInTheHubCache) {
  EXPECT_THAT(Build({"convert", "org/other", "t", "--to", "megatron"}),
              IsError(ErrorCode::kIncomplete, StrEq("there is no such path, and no model of this name in the local hub cache, in `org/other`; expected "
                                                    "`/cache/hub/models--org--other`\nhint: nothing is downloaded: fetch the model first, or give the "
                                                    "path of its directory")));
}

TEST(ConvertOptionsOf, RefusesUrlsByTheirScheme) {
  const auto refusal = [](const char* scheme, const char* path) {
    return IsError(ErrorCode::kUnsupported, StrEq(fmt::format("`{}` URLs are not available in this version, in `{}`\nhint: copy the checkpoint to a "
                                                              "local path first", scheme, path)));
  };
  EXPECT_THAT(Build({"convert", "gs://bucket/x", "t", "--to", "hf"}), refusal("gs://", "gs://bucket/x"));
  EXPECT_THAT(Build({"convert", "s", "s3://bucket/x", "--to", "hf"}), refusal("s3://", "s3://bucket/x"));
  EXPECT_THAT(Build({"convert", "s", "t", "--to", "hf", "--hf-template", "gs://bucket/x"}), refusal("gs://", "gs://bucket/x"));
  EXPECT_THAT(Build({"convert", "folder/a://b", "t", "--to", "hf"}), IsOk());
}

TEST(ConvertOptionsOf, RefusesASaverOfAnotherFormat) {
  EXPECT_THAT(Build({"convert", "s", "t", "--saver", "core", "--to", "hf"}),
              IsError(ErrorCode::kUsage, StrEq("`--saver` and `--to` name two formats; found `--saver core`, which is `megatron`, and `--to hf`\n"
                                               "hint: leave one of them out")));
}

TEST(ConvertOptionsOf, ASizeNamesItsFamilyWhereItSaysOne) {
  for (const auto& [size, family] : {std::pair{"llama2-13Bf", "llama"}, {"llama3.1-70B", "llama"}, {"mistral-7B", "mistral"}, {"mixtral-8x7B", "mixtral"}, {"qwen2.5-7B", "qwen2"}, {"yi-34B", "llama"}}) {
    EXPECT_EQ(Build({"convert", "a", "b", "--model-size", size})->family, family) << size;
  }
  for (const char* size : {"7B", "13Bf", "70B"}) EXPECT_EQ(Build({"convert", "a", "b", "--model-size", size})->family, std::nullopt) << size;
  EXPECT_EQ(Build({"convert", "a", "b", "--model-size", "llama2-7B", "--family", "qwen3"})->family, "qwen3");
}

TEST(ConvertOptionsOf, RefusesContradictions) {
  EXPECT_THAT(Build({"convert", "a", "b", "--bf16", "--dtype", "fp32"}), IsError(ErrorCode::kUsage, StrEq(
      "two different dtypes are asked for; found `fp32` and `bf16`")));
  EXPECT_THAT(Build({"convert", "a", "b", "c"}), IsError(ErrorCode::kUsage, StrEq(
      "`crossdock convert` has one word too many; found `c`\nhint: usage: crossdock convert SOURCE TARGET --to FORMAT [options]")));
  EXPECT_THAT(Build({"convert", "a", "--save-dir", "x", "--output", "y"}), IsError(ErrorCode::kUsage, HasSubstr("twice")));
  EXPECT_THAT(Build({"convert", "--to", "hf"}), IsError(ErrorCode::kUsage, StrEq(
      "`crossdock convert` needs SOURCE\nhint: usage: crossdock convert SOURCE TARGET --to FORMAT [options]")));
  EXPECT_THAT(Build({"convert", "a", "b", "--no-optim", "--require-optim"}), IsError(ErrorCode::kUsage, HasSubstr("contradict")));
  EXPECT_THAT(Build({"convert", "a", "b", "--allow", "anything"}), IsError(ErrorCode::kUsage, HasSubstr("`--allow` takes one of")));
  EXPECT_THAT(Build({"convert", "a", "b", "--model-type", "BERT"}), IsError(ErrorCode::kUnsupported, HasSubstr("`BERT`")));
}

TEST(ConvertLayout, TakesEverySpellingOfADivision) {
  for (const char* spelling : {"--vpp=2", "--num-virtual-stages-per-pipeline-rank=2", "--target_num_virtual_stages_per_pipeline_rank=2"}) {
    ASSERT_OK_AND_ASSIGN(const ConvertOptions options, Build({"convert", "a", "b", "--to", "megatron", "--pp", "2", spelling}));
    EXPECT_EQ(options.layout.vpp, 2) << spelling;
    EXPECT_TRUE(options.layout.given);
  }
  for (const char* spelling : {"--pipeline-layout", "--pipeline-model-parallel-layout", "--pipeline_model_parallel_layout"}) {
    ASSERT_OK_AND_ASSIGN(const ConvertOptions options, Build({"convert", "a", "b", "--to", "megatron", spelling, "Et|tL"}));
    EXPECT_EQ(options.layout.pipeline_layout, "Et|tL") << spelling;
  }
  ASSERT_OK_AND_ASSIGN(const ConvertOptions sized, Build({"convert", "a", "b", "--to", "megatron", "--num-layers-per-virtual-pipeline-stage", "3"}));
  EXPECT_EQ(sized.layout.layers_per_virtual_stage, 3);
  ASSERT_OK_AND_ASSIGN(const ConvertOptions counted, Build({"convert", "a", "b", "--to", "megatron", "--account-for-embedding-in-pipeline-split", "--account-for-loss"}));
  EXPECT_TRUE(counted.layout.account_for_embedding);
  EXPECT_TRUE(counted.layout.account_for_loss);
  ASSERT_OK_AND_ASSIGN(const ConvertOptions off, Build({"convert", "a", "b", "--to", "hf", "--account_for_embedding=false", "--vpp", "1"}));
  EXPECT_FALSE(off.layout.account_for_embedding);
}

}  // namespace
}  // namespace crossdock::cli
