// SPDX-License-Identifier: Apache-2.0
#include "cli/parser.h"

#include "result_matchers.h"

namespace crossdock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

Result<Request> Parse(const std::vector<std::string>& args, const std::map<std::string, std::string>& environment = {}) {
  CROSSDOCK_ASSIGN_OR_RETURN(const Words words, SettleWords(args, [](const std::string&) { return false; }));
  return ParseWords(words, [&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(Parser, CollectsRepeatableOptions) {
  ASSERT_OK_AND_ASSIGN(const Request request, Parse({"convert", "a", "b", "--set", "lr=1", "--set=min_lr=2", "--to", "megatron"}));
  EXPECT_THAT(request.All("set"), ElementsAre("lr=1", "min_lr=2"));
  ASSERT_OK_AND_ASSIGN(const auto to, request.One("to"));
  EXPECT_EQ(to, "megatron");
}

TEST(Parser, KeepsBracketsAndCommasOfAValue) {
  ASSERT_OK_AND_ASSIGN(const Request request, Parse({"convert", "--source=[a,b]", "--allow", "inexact"}));
  EXPECT_THAT(request.All("source"), ElementsAre("[a,b]"));
}

TEST(Parser, RefusesTwoDifferentValues) {
  ASSERT_OK_AND_ASSIGN(const Request request, Parse({"convert", "--tp", "2", "--tensor-parallel-size", "4"}));
  EXPECT_THAT(request.One("tp"), IsError(ErrorCode::kUsage, StrEq("`--tp` was given twice with different values; found `2` and `4`")));
  ASSERT_OK_AND_ASSIGN(const Request same, Parse({"convert", "--tp", "2", "--tensor-parallel-size", "2"}));
  EXPECT_THAT(same.One("tp"), IsOk());
}

TEST(Parser, ReadsTheEnvironmentByRule) {
  ASSERT_OK_AND_ASSIGN(const Request request,
                       Parse({"convert", "--threads", "2"}, {{"CROSSDOCK_THREADS", "8"}, {"CROSSDOCK_MAX_SHARD_SIZE", "1GB"}, {"CROSSDOCK_FORCE", "1"}}));
  EXPECT_THAT(request.All("threads"), ElementsAre("2"));  // the command line wins
  EXPECT_THAT(request.All("max-shard-size"), ElementsAre("1GB"));
  EXPECT_TRUE(request.Flag("force"));
  EXPECT_THAT(Parse({"convert"}, {{"CROSSDOCK_FORCE", "perhaps"}}), IsError(ErrorCode::kUsage, StrEq(
      "the environment variable `CROSSDOCK_FORCE` takes true or false; found `perhaps`")));
  ASSERT_OK_AND_ASSIGN(const Request fp8, Parse({"convert"}, {{"CROSSDOCK_FP8_STRATEGY", "channel"}}));
  EXPECT_THAT(fp8.All("fp8-strategy"), ElementsAre("channel"));
  EXPECT_THAT(Parse({"inspect", "a"}, {{"CROSSDOCK_TP", "2"}}), IsOk());  // not an option of inspect
}

TEST(Parser, TheCommandLineComesBeforeTheEnvironment) {
  const std::map<std::string, std::string> environment = {{"CROSSDOCK_SOURCE", "x"}, {"CROSSDOCK_TARGET", "y"}, {"CROSSDOCK_BF16", "1"}, {"CROSSDOCK_TP", "4"}};
  ASSERT_OK_AND_ASSIGN(const Request words, Parse({"convert", "a", "b", "--dtype", "fp32", "--tp", "2"}, environment));
  EXPECT_THAT(words.All("source"), ::testing::IsEmpty());
  EXPECT_THAT(words.All("target"), ::testing::IsEmpty());
  EXPECT_FALSE(words.Flag("bf16"));
  EXPECT_THAT(words.All("tp"), ElementsAre("2"));
  ASSERT_OK_AND_ASSIGN(const Request none, Parse({"convert", "a"}, environment));
  EXPECT_THAT(none.All("target"), ElementsAre("y"));
  EXPECT_TRUE(none.Flag("bf16"));
}

TEST(Parser, NamesVariablesThatSetNothing) {
  EXPECT_THAT(UnknownVariables({"HOME", "CROSSDOCK", "CROSSDOCK_TP", "CROSSDOCK_MAX_SHARD_SIZE", "CROSSDOCK_EP", "CROSSDOCK_BUILD_JOBS"}), ::testing::IsEmpty());
  EXPECT_THAT(UnknownVariables({"CROSSDOCK_THREAD", "CROSSDOCK_TENSOR_MODEL_PARALLEL_SIZE", "CROSSDOCK_ABRACADABRA"}),
              ElementsAre("the environment variable `CROSSDOCK_ABRACADABRA` sets nothing",
                          "the environment variable `CROSSDOCK_TENSOR_MODEL_PARALLEL_SIZE` sets nothing; did you mean `CROSSDOCK_TP`?",
                          "the environment variable `CROSSDOCK_THREAD` sets nothing; did you mean `CROSSDOCK_THREADS`?"));
}

TEST(Parser, PrintsHelp) {
  const std::string help = HelpText(FindCommand("convert"));
  EXPECT_THAT(help, HasSubstr("Usage: crossdock convert SOURCE TARGET --to FORMAT [options]"));
  EXPECT_THAT(help, HasSubstr("--max-shard-size SIZE"));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("--load-dir")));
  EXPECT_THAT(HelpText(nullptr), HasSubstr("Usage: crossdock COMMAND [options]"));
}

}  // namespace
}  // namespace crossdock::cli
