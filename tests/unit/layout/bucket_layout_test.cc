// SPDX-License-Identifier: Apache-2.0
#include "layout/bucket_layout.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "result_matchers.h"
#include "tensor/value.h"

namespace crossdock::layout {
namespace {

using ::testing::HasSubstr;

/// What the real `_ParamAndGradBuffer` laid out.
struct Golden {
  std::string name;
  std::vector<BufferParam> params;
  BucketRules rules;
  std::vector<std::int64_t> starts, buckets;  ///< of each parameter; starts in the padded buffer
  std::vector<std::int64_t> numel, numel_unpadded;
};

std::vector<std::int64_t> Numbers(const Value& list) {
  std::vector<std::int64_t> numbers;
  for (const Value& value : *list.as_sequence()) numbers.push_back(*value.as_int());
  return numbers;
}

std::vector<Golden> ReadGolden() {
  std::ifstream in(CROSSDOCK_SOURCE_DIR "/tests/golden/buckets/expected.json");
  std::stringstream text;
  text << in.rdbuf();
  std::vector<Golden> all;
  const Result<Value> read = ParseJson(text.str());
  EXPECT_THAT(read, IsOk());
  if (!read) return all;
  for (const Value& row : *read->Find("buffers")->as_sequence()) {
    Golden golden;
    golden.name = *row.GetString("name");
    for (const std::int64_t size : Numbers(*row.Find("sizes"))) golden.params.push_back({size, false});
    for (const std::int64_t i : Numbers(*row.Find("shared"))) golden.params[static_cast<std::size_t>(i)].shared_embedding = true;
    golden.rules = {*row.GetInt("dp"), row.GetInt("bucket_size"), *row.GetBool("high_busbw")};
    for (const Value& place : *row.Find("params")->as_sequence()) {
      golden.starts.push_back(Numbers(place)[0]);
      golden.buckets.push_back(Numbers(place)[2]);
    }
    golden.numel = Numbers(*row.Find("numel"));
    golden.numel_unpadded = Numbers(*row.Find("numel_unpadded"));
    all.push_back(std::move(golden));
  }
  return all;
}

void ExpectPlaces(const Golden& golden, const BucketLayout& layout) {
  ASSERT_EQ(layout.params.size(), golden.params.size());
  EXPECT_EQ(layout.numel_unpadded, golden.numel_unpadded);
  for (std::size_t i = 0; i < golden.params.size(); ++i) {
    const BucketLayout::Place& place = layout.params[i];
    EXPECT_EQ(place.bucket, golden.buckets[i]) << "parameter " << i;
    std::int64_t padded = 0;
    std::int64_t unpadded = 0;
    for (std::int64_t b = 0; b < place.bucket; ++b) {
      padded += golden.numel[static_cast<std::size_t>(b)];
      unpadded += golden.numel_unpadded[static_cast<std::size_t>(b)];
    }
    EXPECT_EQ(place.start + padded, golden.starts[i]) << "parameter " << i;
    EXPECT_EQ(place.coalesced, unpadded + place.start) << "parameter " << i;
  }
}

TEST(BucketLayoutTest, IsTheRealBuffersLayout) {
  const std::vector<Golden> all = ReadGolden();
  ASSERT_GT(all.size(), 100U);
  for (const Golden& golden : all) {
    SCOPED_TRACE(golden.name);
    ASSERT_OK_AND_ASSIGN(const BucketLayout layout, MakeBucketLayout(golden.params, golden.rules));
    ExpectPlaces(golden, layout);
    EXPECT_EQ(layout.numel, golden.numel);
  }
}

TEST(BucketLayoutTest, FollowsFromTheRecordedSizesAlone) {
  for (const Golden& golden : ReadGolden()) {
    SCOPED_TRACE(golden.name);
    std::vector<BufferParam> params = golden.params;
    for (BufferParam& param : params) param.shared_embedding = false;  // the sizes say it
    ASSERT_OK_AND_ASSIGN(const BucketLayout layout, FitBucketLayout(params, golden.numel_unpadded));
    ExpectPlaces(golden, layout);
  }
}

TEST(BucketLayoutTest, RefusesSizesThatDoNotFit) {
  const std::vector<BufferParam> params = {{100}, {50}, {200}};  // 200, 50 at 256, 100 at 320
  EXPECT_THAT(FitBucketLayout(params, std::vector<std::int64_t>{420}), IsOk());
  EXPECT_THAT(FitBucketLayout(params, std::vector<std::int64_t>{421}), IsError(ErrorCode::kCorrupt, HasSubstr("420 elements in bucket 0")));
  EXPECT_THAT(FitBucketLayout(params, std::vector<std::int64_t>{419}), IsError(ErrorCode::kCorrupt, HasSubstr("at least 420")));
  EXPECT_THAT(FitBucketLayout(params, std::vector<std::int64_t>{200}), IsError(ErrorCode::kCorrupt, HasSubstr("2 more parameters")));
  EXPECT_THAT(FitBucketLayout(params, std::vector<std::int64_t>{420, 64}), IsError(ErrorCode::kCorrupt, HasSubstr("no further parameters")));
  EXPECT_THAT(FitBucketLayout(params, std::vector<std::int64_t>{0, 420}), IsError(ErrorCode::kCorrupt, HasSubstr("bucket 0")));
  EXPECT_THAT(FitBucketLayout(params, {}), IsError(ErrorCode::kCorrupt, HasSubstr("3 more parameters")));
}

TEST(BucketLayoutTest, RefusesAbsurdSizes) {
  EXPECT_THAT(MakeBucketLayout(std::vector<BufferParam>{{0}}, {}), IsError(ErrorCode::kCorrupt, HasSubstr("0 elements")));
  EXPECT_THAT(MakeBucketLayout(std::vector<BufferParam>{{INT64_MAX}}, {}), IsError(ErrorCode::kCorrupt, HasSubstr("elements")));
  const std::vector<BufferParam> many(4, BufferParam{std::int64_t{1} << 55U});
  EXPECT_THAT(FitBucketLayout(many, std::vector<std::int64_t>{1}), IsError(ErrorCode::kCorrupt, HasSubstr("more elements than any file")));
}

TEST(BucketLayoutTest, PiecesEndWhereParametersEnd) {
  const std::vector<BufferParam> params = {{100}, {50}, {200}};
  ASSERT_OK_AND_ASSIGN(const BucketLayout layout, MakeBucketLayout(params, {2, std::nullopt, false}));
  ASSERT_EQ(layout.numel, (std::vector<std::int64_t>{512}));
  const auto check = [&](std::vector<std::int64_t> edges) { return CheckPieces(layout, params, 0, edges, 256); };
  EXPECT_THAT(check({0, 200, 256, 306, 320}), IsOk());
  EXPECT_THAT(check({0, 200, 256, 306, 310, 320}), IsError(ErrorCode::kCorrupt, HasSubstr("one at 310")));
  EXPECT_THAT(check({0, 200, 256, 320}), IsError(ErrorCode::kCorrupt, HasSubstr("a piece at element 306")));
  EXPECT_THAT(check({0, 200, 256, 306}), IsError(ErrorCode::kCorrupt, HasSubstr("none")));
  EXPECT_THAT(CheckPieces(layout, params, 0, std::vector<std::int64_t>{0, 200, 210, 256, 306, 320}, std::nullopt), IsOk());
}

}  // namespace
}  // namespace crossdock::layout
