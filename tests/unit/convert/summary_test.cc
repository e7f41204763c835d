// SPDX-License-Identifier: Apache-2.0
#include "convert/summary.h"

#include "convert/demo_model.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Summary, PrintsSizesAndSections) {
  EXPECT_EQ(HumanBytes(17), "17 bytes");
  EXPECT_EQ(HumanBytes(std::int64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(Section("left out", {}), "");
  EXPECT_EQ(Section("left out", {"a", "b", "c"}, 2), "left out:\n  a\n  b\n  ... and 1 more\n");
  EXPECT_THAT(LeftOutLines({{"rng_state", "belongs to the ranks", 2, 2048}}),
              ElementsAre("rng_state (2 of them), 2.0 KiB: belongs to the ranks"));
}

TEST(Summary, TellsThePlanWithTheTotalFirst) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  ConvertOptions options;
  options.target = "a place";
  options.to = "megatron";
  options.layout.pp = 2;
  options.layout.pipeline_layers = {3, 1};
  ASSERT_OK_AND_ASSIGN(const Target target, PrepareTarget(model.source, options));
  const Report report = MakePlanReport(model.source, target, options, 1000);
  EXPECT_TRUE(report.text.starts_with("total ")) << report.text;
  EXPECT_THAT(report.text, HasSubstr("pipeline stages:\n  stage 0: layers 0 to 2, embedding\n  stage 1: layer 3, head\n"));
  EXPECT_THAT(report.text, HasSubstr("1000 bytes free: NOT ENOUGH\n"));
  EXPECT_THAT(report.text, HasSubstr("load it with:\n  --load 'a place' "));
  ASSERT_OK_AND_ASSIGN(const Value json, ParseJson(report.json));
  EXPECT_EQ(json.GetInt("disk_free"), 1000);
  EXPECT_EQ(json.GetInt("bytes_read"), target.plan.bytes_read);
}

TEST(Summary, NamesStateThatNoRngLeavesBehind) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  model.source.hub.left_out.push_back({"rng_state", "belongs to the ranks", 1, 0});
  ConvertOptions options;
  options.target = "out";
  options.to = "hf";
  options.no_rng = true;
  ASSERT_OK_AND_ASSIGN(const Target target, PrepareTarget(model.source, options));
  EXPECT_THAT(MakeSummary(model.source, target, options, TallyOf(model.source, target), {}).text, HasSubstr("rng_state: left behind by --no-rng"));
}

}  // namespace
}  // namespace crossdock::convert
