// SPDX-License-Identifier: Apache-2.0
#include "convert/export_target.h"

#include "crossdock/live_save.h"
#include "result_matchers.h"

namespace crossdock {
namespace {

using ::testing::HasSubstr;

TEST(ExportPath, FillsTheTemplate) {
  EXPECT_EQ(*ExportPath("/o/{step}", false, 42), "/o/42");
  EXPECT_EQ(*ExportPath("/o/a{rollout_id:07d}b", false, 42), "/o/a0000042b");
  EXPECT_EQ(*ExportPath("/o/{{x}}/{step:3}", false, 7), "/o/{x}/  7");
  EXPECT_EQ(*ExportPath("/o/hf", false, 7), "/o/hf/iter_0000007");
  EXPECT_EQ(*ExportPath("/o/hf", true, 7), "/o/hf");
  for (const char* wrong : {"/o/{epoch}", "/o/{step", "/o/{step:x}", "/o/{}", "/o/{step!r}", ""}) {
    EXPECT_THAT(ExportPath(wrong, true, 1), IsError(ErrorCode::kUsage, HasSubstr("target"))) << wrong;
  }
}

}  // namespace
}  // namespace crossdock
