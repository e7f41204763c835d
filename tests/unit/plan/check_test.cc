// SPDX-License-Identifier: Apache-2.0
#include "plan/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive.h"
#include "result_matchers.h"

namespace crossdock::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Shape kShape = {4, 6};

struct Fixture {
  MemoryCheckpoint source = Place({MakeEntry("in", DType::kF32, kShape)});
  MemoryCheckpoint target = Place({MakeEntry("out", DType::kF32, kShape, Grid(kShape, {2, 1}))});
  std::vector<expr::Expr> exprs = {expr::Leaf(0, DType::kF32, kShape)};
  [[nodiscard]] Status Check() const { return CheckInputs(source.catalog, target.catalog, exprs); }
};

TEST(CheckInputs, AcceptsWhatFits) { EXPECT_THAT(Fixture().Check(), IsOk()); }

TEST(CheckInputs, NamesAnExpressionThatDoesNotGiveItsTarget) {
  Fixture f;
  f.target = Place({MakeEntry("out", DType::kBF16, kShape)});
  EXPECT_THAT(f.Check(),
              IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("out"), HasSubstr("BF16 [4, 6]"), HasSubstr("F32 [4, 6]"))));
}

TEST(CheckInputs, NamesASourceTensorOfAnotherShape) {
  Fixture f;
  f.source = Place({MakeEntry("in", DType::kF32, {4, 7})});
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kCorrupt, AllOf(HasSubstr("`in`"), HasSubstr("[4, 7]"))));
}

TEST(CheckInputs, NamesATargetThatNothingFeeds) {
  Fixture f;
  f.exprs[0] = nullptr;
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kIncomplete, HasSubstr("nothing says where it comes from")));
  f.exprs[0] = expr::Leaf(3, DType::kF32, kShape);
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kIncomplete, HasSubstr("the source has no tensor for it")));
  f.exprs.clear();
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kIncomplete, HasSubstr("do not agree in number")));
}

TEST(CheckInputs, NamesChunksThatDoNotCover) {
  Fixture f;
  f.target.catalog.entries[0].chunks.pop_back();
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kIncomplete, HasSubstr("do not cover")));
  f = Fixture();
  f.source.catalog.entries[0].chunks.push_back(f.source.catalog.entries[0].chunks[0]);
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kCorrupt, HasSubstr("overlap")));
}

TEST(CheckInputs, NamesByteRangesThatDoNotFit) {
  Fixture f;
  f.target.catalog.entries[0].chunks[1].bytes.length -= 4;
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kCorrupt, HasSubstr("byte range")));
  f = Fixture();
  f.source.catalog.files[0].identity.size -= 1;
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kCorrupt, HasSubstr("byte range")));
  f = Fixture();
  f.target.catalog.entries[0].chunks[0].file = 9;
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kCorrupt, HasSubstr("lies in no file")));
  f = Fixture();
  f.source.catalog.entries[0].chunks[0].encoding = ChunkEncoding::kTorchBlob;  // with its zip around the elements
  f.source.catalog.entries[0].chunks[0].bytes.length += 7;
  f.source.catalog.entries[0].chunks[0].bytes.offset -= 7;
  EXPECT_THAT(f.Check(), IsOk());
}

TEST(CheckInputs, RefusesElementsThatShareBytes) {
  Fixture f;
  f.source = Place({MakeEntry("in", DType::kF32, kShape)});
  f.source.catalog.entries[0].dtype = DType::kF4;
  f.target.catalog.entries[0].dtype = DType::kF4;
  f.exprs[0] = expr::Leaf(0, DType::kF4, kShape);
  EXPECT_THAT(f.Check(), IsError(ErrorCode::kUnsupported, HasSubstr("share bytes")));
}

TEST(CheckInputs, ReportsEverythingAtOnceButAtMostTwentyByName) {
  std::vector<Entry> in, out;
  std::vector<expr::Expr> exprs;
  for (int i = 0; i < 25; ++i) {
    const std::string n = std::to_string(100 + i);
    in.push_back(MakeEntry("in" + n, DType::kF32, {3}));
    out.push_back(MakeEntry("out" + n, DType::kF32, {2}));
    exprs.push_back(expr::Leaf(i, DType::kF32, {3}));
  }
  const MemoryCheckpoint source = Place(std::move(in));
  const MemoryCheckpoint target = Place(std::move(out));
  const Status status = CheckInputs(source.catalog, target.catalog, exprs);
  EXPECT_THAT(status, IsError(ErrorCode::kCorrupt,
                              AllOf(HasSubstr("25 contradictions"), HasSubstr("`out100`"), HasSubstr("`out119`"),
                                    HasSubstr("and 5 more"), Not(HasSubstr("out120")))));
}

}  // namespace
}  // namespace crossdock::plan
