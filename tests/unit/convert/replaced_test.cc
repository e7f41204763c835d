// SPDX-License-Identifier: Apache-2.0
#include "convert/replaced.h"

#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;

void Put(io::Storage& storage, const std::string& path) {
  ASSERT_THAT(io::MakeDirs(storage, io::ParentPath(path)), IsOk());
  ASSERT_THAT(io::WriteSmallFile(storage, path, "{}"), IsOk());
}

TEST(Replaced, IsNothingWhereNothingLies) {
  io::MemoryStorage storage;
  ASSERT_THAT(io::MakeDirs(storage, "/w/empty"), IsOk());
  for (const char* unit : {"/w/none", "/w/empty"}) {
    ASSERT_OK_AND_ASSIGN(const auto what, WhatIsReplaced(storage, unit));
    EXPECT_FALSE(what.has_value()) << unit;
  }
}

TEST(Replaced, IsACheckpointByItsContent) {
  io::MemoryStorage storage;
  Put(storage, "/w/hf/config.json");
  Put(storage, "/w/hf/model.safetensors.index.json");
  Put(storage, "/w/iter_0000001/.metadata");
  Put(storage, "/w/iter_0000001/common.pt");
  ASSERT_OK_AND_ASSIGN(const auto hf, WhatIsReplaced(storage, "/w/hf"));
  EXPECT_EQ(hf, "hf");
  ASSERT_OK_AND_ASSIGN(const auto unfinished, WhatIsReplaced(storage, "/w/iter_0000001"));
  EXPECT_EQ(unfinished, "megatron");
}

TEST(Replaced, IsNeverSomebodysOtherFiles) {
  io::MemoryStorage storage;
  Put(storage, "/w/home/thesis.tex");
  Put(storage, "/w/project/config.json");
  Put(storage, "/w/project/main.cc");
  Put(storage, "/w/run/iter_0000001/common.pt");
  Put(storage, "/w/file");
  EXPECT_THAT(WhatIsReplaced(storage, "/w/home"), IsError(ErrorCode::kUsage, HasSubstr("found `thesis.tex`")));
  EXPECT_THAT(WhatIsReplaced(storage, "/w/project"), IsError(ErrorCode::kUsage, HasSubstr("found `config.json`, `main.cc`")));
  EXPECT_THAT(WhatIsReplaced(storage, "/w/run"), IsError(ErrorCode::kUsage, HasSubstr("found `iter_0000001`")));
  EXPECT_THAT(WhatIsReplaced(storage, "/w/file"), IsError(ErrorCode::kUsage, HasSubstr("found a file")));
}

}  // namespace
}  // namespace crossdock::convert
