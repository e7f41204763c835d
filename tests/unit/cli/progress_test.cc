// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include "result_matchers.h"

namespace crossdock::cli {
namespace {

using ::testing::HasSubstr;

TEST(Progress, TellsBytesRateAndTimeLeft) {
  EXPECT_EQ(ProgressText({"converting", 512 << 20, std::int64_t{2} << 30, ""}, 2, 0),
            "converting 512.0 MiB of 2.0 GiB (25 %), 256.0 MiB/s, 6 s left");
  EXPECT_EQ(ProgressText({"converting", 5, 10, ""}, 0.01, 0), "converting 5 bytes of 10 bytes (50 %)");
  EXPECT_EQ(ProgressText({"planning", 0, 0, ""}, 3, 0), "planning");
}

TEST(Progress, DoesNotCountWhatAResumedRunFound) {
  EXPECT_EQ(ProgressText({"converting", 30 << 20, 40 << 20, ""}, 1, 20 << 20),
            "converting 30.0 MiB of 40.0 MiB (75 %), 10.0 MiB/s, 1 s left");
}

TEST(Progress, PrintsLinesAndJson) {
  std::FILE* file = std::tmpfile();
  {
    ProgressPrinter plain(file, ProgressMode::kPlain, true);
    plain.Event({"converting", 10, 10, "a\nb"});
    ProgressPrinter json(file, ProgressMode::kJson, false);
    json.Event({"converting", 5, 10, "x\"y"});
    ProgressPrinter off(file, ProgressMode::kOff, false);
    off.Event({"converting", 7, 10, ""});
    off.PrintNow();
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_THAT(text, HasSubstr("converting 10 bytes of 10 bytes (100 %), a\\nb\n"));
  EXPECT_THAT(text, HasSubstr("{\"phase\": \"converting\", \"bytes_done\": 5, \"bytes_total\": 10, "));
  EXPECT_THAT(text, HasSubstr("\"current\": \"x\\\"y\"}\n"));
  EXPECT_THAT(text, HasSubstr("converting 7 bytes of 10 bytes (70 %)\n"));
}

TEST(Progress, KnowsItsModes) {
  ASSERT_OK_AND_ASSIGN(const ProgressMode terminal, ProgressPrinter::ModeFromName("auto", true));
  EXPECT_EQ(terminal, ProgressMode::kLine);
  ASSERT_OK_AND_ASSIGN(const ProgressMode pipe, ProgressPrinter::ModeFromName("auto", false));
  EXPECT_EQ(pipe, ProgressMode::kOff);
  EXPECT_THAT(ProgressPrinter::ModeFromName("bar", true), IsError(ErrorCode::kUsage, HasSubstr("`--progress` takes auto")));
}

}  // namespace
}  // namespace crossdock::cli
