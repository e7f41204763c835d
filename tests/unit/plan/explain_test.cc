// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive.h"
#include "plan/plan_json.h"
#include "plan/planner.h"
#include "result_matchers.h"

namespace crossdock::plan {
namespace {

using testing::HasSubstr;

PlanSummary Example() {
  const MemoryCheckpoint source =
      Place({MakeEntry("m", DType::kF32, {8, 4}, {}, Slot::kAdamMu), MakeEntry("w", DType::kBF16, {8, 4})});
  MemoryCheckpoint target =
      Place({MakeEntry("m", DType::kF32, {8, 4}, {}, Slot::kAdamMu), MakeEntry("w", DType::kBF16, {8, 4})});
  SideFile config;
  config.path = "config.json";
  config.bytes = "{}";
  SideFile copied;
  copied.path = "tokenizer.json";
  copied.size = 5000;
  target.catalog.side_files = {config, copied};
  const std::vector<expr::Expr> exprs = {expr::Leaf(0, DType::kF32, {8, 4}), expr::Leaf(1, DType::kBF16, {8, 4})};
  auto plan = MakePlan(source.catalog, target.catalog, exprs, {});
  EXPECT_THAT(plan, IsOk());
  plan->hash = "0123";
  plan->peak_memory = 3 << 20;
  const std::vector<FileRef> metadata = {{".metadata", {100, 0, 0}}};
  return Summarise(*plan, source.catalog, target.catalog, metadata);
}

/// The file: two tensors of 128 and 64 bytes, each after a gap of 7.
TEST(ExplainPlan, PrintsTheTotalFirstThenFilesAndSlots) {
  EXPECT_EQ(ExplainPlan(Example()),
            "total     5.2 KiB (5308 bytes) in 4 files\n"
            "\n"
            "           bytes  file\n"
            "             206  file-0\n"
            "               2  config.json\n"
            "            5000  tokenizer.json\n"
            "             100  .metadata\n"
            "\n"
            "slot       tensors        bytes read     bytes written\n"
            "param            1                64                64\n"
            "adam_mu          1               128               128\n"
            "all              2               192               192\n"
            "\n"
            "work      1 task, 2 reads, the largest task 384 B\n"
            "memory    3.0 MiB at the peak\n");
}

TEST(ExplainPlan, NamesNoMoreFilesThanAsked) {
  const std::string text = ExplainPlan(Example(), 1);
  EXPECT_THAT(text, HasSubstr("and 3 more"));
  EXPECT_THAT(text, testing::Not(HasSubstr("config.json")));
}

TEST(PlanJson, HoldsTheSameNumbers) {
  ASSERT_OK_AND_ASSIGN(const Value json, ParseJson(PlanJson(Example())));
  EXPECT_EQ(json.GetInt("total_bytes"), 5308);
  EXPECT_EQ(json.GetInt("bytes_written"), 192);
  EXPECT_EQ(json.GetInt("tasks"), 1);
  EXPECT_EQ(json.GetInt("peak_memory_bytes"), 3 << 20);
  EXPECT_EQ(json.GetString("plan_hash"), "0123");
  const Value* slots = json.Find("slots");
  ASSERT_NE(slots, nullptr);
  ASSERT_NE(slots->as_sequence(), nullptr);
  ASSERT_EQ(slots->as_sequence()->size(), 2U);
  EXPECT_EQ((*slots->as_sequence())[1].GetString("slot"), "adam_mu");
  EXPECT_EQ((*slots->as_sequence())[1].GetInt("bytes_read"), 128);
}

}  // namespace
}  // namespace crossdock::plan
