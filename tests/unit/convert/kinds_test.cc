// SPDX-License-Identifier: Apache-2.0
#include "convert/kinds.h"

#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

TEST(Kinds, ListsEveryFormatOnce) {
  for (const KindSpec& spec : KindTable()) {
    EXPECT_EQ(&SpecOf(spec.kind), &spec);
    EXPECT_EQ(formats::KindFromName(formats::KindName(spec.kind)), spec.kind);
  }
}

TEST(Kinds, RefusesWhatItCannotWriteOrRead) {
  ASSERT_OK_AND_ASSIGN(const formats::Kind hf, ParseTargetKind("hf"));
  EXPECT_EQ(hf, formats::Kind::kHf);
  EXPECT_THAT(ParseTargetKind("megatron-zarr"), IsError(ErrorCode::kUnsupported, StrEq(
      "this version cannot write `megatron-zarr`; expected one of `hf`, `full-state`, `megatron`, `megatron-legacy`, `dcp`, `maxtext`, `tunix`")));
  EXPECT_THAT(ParseTargetKind("gguf"), IsError(ErrorCode::kUsage, HasSubstr("found `gguf`")));
  EXPECT_THAT(ParseTargetKind("megatorn"), IsError(ErrorCode::kUsage, HasSubstr("hint: did you mean `megatron`?")));
  EXPECT_THAT(ParseSourceKind("full_stat"), IsError(ErrorCode::kUsage, HasSubstr("hint: did you mean `full-state`?")));
  EXPECT_THAT(ParseSourceKind("tunix"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto none, ParseSourceKind(std::nullopt));
  EXPECT_FALSE(none.has_value());
}

}  // namespace
}  // namespace crossdock::convert
