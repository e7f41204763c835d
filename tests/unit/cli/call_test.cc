// SPDX-License-Identifier: Apache-2.0
#include "crossdock/call.h"

#include <gtest/gtest.h>

#include "result_matchers.h"

namespace crossdock {
namespace {

using ::testing::HasSubstr;

Result<Report> CallIt(std::string command, std::vector<std::string> paths, decltype(Call::options) options = {}) {
  return RunCall({std::move(command), std::move(paths), std::move(options)}, {});
}

TEST(RunCall, MakesBothFormsOfAReport) {
  const Result<Report> report = CallIt("families", {"qwen3"});
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->text, HasSubstr("qwen3"));
  EXPECT_THAT(report->json, HasSubstr("\"qwen3\""));
}

TEST(RunCall, TakesEitherSpellingOfACommand) {
  for (const char* command : {"resume-plan", "resume_plan"}) {
    EXPECT_THAT(CallIt(command, {"/no/such/run"}), IsOk());
  }
}

TEST(RunCall, ReadsOptionsAsTheCommandLineDoes) {
  EXPECT_THAT(CallIt("convert", {"a", "b"}, {{"to", {"megatron"}}, {"tp", {"0"}}}), IsError(ErrorCode::kUsage, HasSubstr("--tp")));
  // Parts of one value, and values of an option that is repeated.
  EXPECT_THAT(CallIt("convert", {"a", "b"}, {{"to", {"hf"}}, {"fp8_block_size", {"128", "x"}}}), IsError(ErrorCode::kUsage, HasSubstr("rows and columns")));
  EXPECT_THAT(CallIt("convert", {"a", "b"}, {{"to", {"hf"}}, {"set", {"a=1", "b"}}}), IsError(ErrorCode::kUsage, HasSubstr("--set")));
  // A word with an equals sign or dashes in front is a path here.
  EXPECT_THAT(CallIt("inspect", {"--tensors=true"}), IsError(ErrorCode::kIncomplete, ::testing::_));
}

TEST(RunCall, NamesWhatItDoesNotTake) {
  struct Case {
    const char *command, *option, *says;
  };
  for (const Case& c : {Case{"convert", "tpp", "`convert` takes no `tpp`"}, Case{"resume_plan", "tp", "`resume_plan` takes no `tp`"},
                        Case{"inspect", "json", "`inspect` takes no `json`"}, Case{"convert", "a=b", "takes no `a=b`"}}) {
    EXPECT_THAT(CallIt(c.command, {"x"}, {{c.option, {"1"}}}), IsError(ErrorCode::kUsage, HasSubstr(c.says)));
  }
  EXPECT_EQ(CallIt("convert", {}, {{"max_shard_sizes", {"1"}}}).error().hint, "did you mean `max_shard_size`?");
  EXPECT_EQ(CallIt("convrt", {}).error().hint, "did you mean `convert`?");
}

}  // namespace
}  // namespace crossdock
