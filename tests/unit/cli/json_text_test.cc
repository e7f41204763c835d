// SPDX-License-Identifier: Apache-2.0
#include "cli/json_text.h"

#include <gtest/gtest.h>

namespace crossdock::cli {
namespace {

TEST(JsonText, EscapesAndReplaces) {
  EXPECT_EQ(JsonText("a\"b\n\x01"), "\"a\\\"b\\n\\u0001\"");
  EXPECT_EQ(JsonText("\xff"), "\"\xEF\xBF\xBD\"");
}

TEST(JsonText, PrintsAnErrorWhole) {
  const Error error = MakeError(ErrorCode::kCorrupt, "header too small")
                          .WithPath("a.safetensors").WithTensor("w").WithOffset(3).WithExpected("8 bytes").WithFound("3").WithHint("download it again");
  EXPECT_EQ(ErrorJson(error), R"({
  "error": {
    "code": "corrupt",
    "exit_status": 3,
    "message": "header too small",
    "path": "a.safetensors",
    "tensor": "w",
    "offset": 3,
    "expected": "8 bytes",
    "found": "3",
    "hint": "download it again",
    "context": []
  }
}
)");
}

}  // namespace
}  // namespace crossdock::cli
