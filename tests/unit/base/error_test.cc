// SPDX-License-Identifier: Apache-2.0
#include "crossdock/error.h"

#include "result_matchers.h"

namespace crossdock {
namespace {

TEST(Error, PrintsOneParagraphWithTheHintLast) {
  const Error e = MakeError(ErrorCode::kCorrupt, "header too small")
                      .WithPath("/a/b.safetensors")
                      .WithTensor("w")
                      .WithOffset(8)
                      .WithExpected("8 bytes")
                      .WithFound("3")
                      .WithContext("opening the source")
                      .WithHint("download the file again");
  EXPECT_EQ(e.ToString(),
            "header too small, in `/a/b.safetensors`, tensor `w`, at byte 8; expected 8 bytes, found 3 "
            "(while opening the source)\nhint: download the file again");
}

TEST(Error, InputThatIsRefusedHasANextStepEvenWhereNobodyNamedOne) {
  for (const ErrorCode code : {ErrorCode::kCorrupt, ErrorCode::kIncomplete, ErrorCode::kUnsafe, ErrorCode::kUnsupported}) {
    const Error e = MakeError(code, "it is bad").WithTensor("w");
    EXPECT_FALSE(e.NextStep().empty()) << ErrorCodeName(code);
    EXPECT_EQ(e.ToString(), "it is bad, tensor `w`\nhint: " + std::string(e.NextStep()));
    EXPECT_EQ(MakeError(code, "it is bad").WithTensor("w").WithHint("mend it").NextStep(), "mend it");
  }
  EXPECT_EQ(MakeError(ErrorCode::kUnsupported, "no such format").NextStep(), "");
  EXPECT_EQ(MakeError(ErrorCode::kCancelled, "stopped").NextStep(), "");
}

TEST(Result, KeepsTheMessageWhenContextIsAdded) {
  Result<int> value = MakeError(ErrorCode::kIo, "the disk went away while it was being read").WithPath("/a/b");
  EXPECT_EQ(std::move(value).WithContext("opening the source").error().ToString(),
            "the disk went away while it was being read, in `/a/b` (while opening the source)");
  Status status = MakeError(ErrorCode::kIo, "short");
  EXPECT_EQ(std::move(status).WithContext("closing").error().ToString(), "short (while closing)");
}

TEST(Error, EveryCodeHasAnExitStatusOfTheContract) {
  EXPECT_EQ(ExitStatus(ErrorCode::kUsage), 2);
  for (ErrorCode c : {ErrorCode::kCorrupt, ErrorCode::kIncomplete, ErrorCode::kUnsafe, ErrorCode::kUnsupported}) {
    EXPECT_EQ(ExitStatus(c), 3) << ErrorCodeName(c);
  }
  EXPECT_EQ(ExitStatus(ErrorCode::kIo), 4);
  EXPECT_EQ(ExitStatus(ErrorCode::kNoSpace), 4);
  EXPECT_EQ(ExitStatus(ErrorCode::kCancelled), 5);
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("a\x1b[31m\n"), "a\\x1b[31m\\n");
  EXPECT_EQ(Printable("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(Printable(std::string(300, 'x'), 10), "xxxxxxxxxx... (300 bytes)");
}

}  // namespace
}  // namespace crossdock
