// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "side_fixture.h"

namespace crossdock::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void AddTensor(Checkpoint* c, const std::string& name, const std::vector<float>& values, Slot slot = Slot::kParam) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  c->Add(name, expr::Leaf(c->Store(DType::kF32, shape, values), DType::kF32, shape), slot);
}

Comparison CompareSides(Checkpoint& a, Checkpoint& b, const Options& options = {}) {
  const Side left = a.side("a");
  const Side right = b.side("b");
  auto result = Compare(left, right, options);
  EXPECT_THAT(result, IsOk());
  return std::move(result).value();
}

Options Close() {
  Options options;
  options.exact = Exact::kClose;
  return options;
}

Options ParamsOnly() {
  Options options;
  options.params_only = true;
  return options;
}

TEST(Compare, PassesOnlyWhenEveryTensorIsBitIdentical) {
  Checkpoint a;
  Checkpoint b;
  AddTensor(&a, "w", {1, 2, 3});
  AddTensor(&b, "w", {1, 2, 3});
  Comparison c = CompareSides(a, b);
  EXPECT_TRUE(c.passed);
  EXPECT_EQ(c.total.num_bit_identical, 1);
  Checkpoint d;
  AddTensor(&d, "w", {1, 2, 3.00001F});
  c = CompareSides(a, d);
  EXPECT_FALSE(c.passed);
  EXPECT_THAT(c.mismatched_keys, ElementsAre("w"));
  EXPECT_EQ(c.worst[0].first_index, 2);
  EXPECT_TRUE(CompareSides(a, d, Close()).passed);
}

TEST(Compare, MissingExtraAndMisshapenNeverPass) {
  Checkpoint a;
  Checkpoint b;
  AddTensor(&a, "common", {1});
  AddTensor(&b, "common", {1});
  AddTensor(&a, "left", {1});
  AddTensor(&b, "right", {1});
  AddTensor(&a, "shape", {1, 2});
  AddTensor(&b, "shape", {1, 2, 3});
  const Comparison c = CompareSides(a, b, Close());
  EXPECT_FALSE(c.passed);
  EXPECT_THAT(c.missing_keys, ElementsAre("left"));
  EXPECT_THAT(c.extra_keys, ElementsAre("right"));
  EXPECT_THAT(c.shape_mismatches, ElementsAre(HasSubstr("shape: [2] against [3]")));
}

TEST(Compare, NothingInCommonFails) {
  Checkpoint a;
  Checkpoint b;
  EXPECT_FALSE(CompareSides(a, b).passed);
}

TEST(Compare, CountsEachSlotAndCanLeaveTheOptimizerOut) {
  Checkpoint a;
  Checkpoint b;
  AddTensor(&a, "w", {1});
  AddTensor(&b, "w", {1});
  AddTensor(&a, "w", {5}, Slot::kAdamMu);
  a.hub().counters.step = 7;
  Comparison c = CompareSides(a, b);
  EXPECT_FALSE(c.passed);
  EXPECT_THAT(c.missing_keys, ElementsAre("w (adam_mu)"));
  EXPECT_THAT(c.counter_differences, ElementsAre("step: 7 against absent"));
  ASSERT_EQ(c.slots.size(), 2U);
  EXPECT_EQ(c.slots[1].first, "adam_mu");
  EXPECT_EQ(c.slots[1].second.num_baseline, 1);
  c = CompareSides(a, b, ParamsOnly());
  EXPECT_TRUE(c.passed);
  EXPECT_THAT(c.counter_differences, IsEmpty());
}

TEST(Compare, AllowsOneUlpOnlyWhereTheRuleIsInexact) {
  Checkpoint a;
  Checkpoint b;
  const float up = std::nextafterf(2.0F, 3.0F);
  const auto scaled = expr::Scale(expr::Leaf(a.Store(DType::kF32, {1}, std::vector<float>{1.0F}), DType::kF32, {1}), 2.0);
  ASSERT_THAT(scaled, IsOk());
  a.Add("w", *scaled);
  AddTensor(&b, "w", {up});
  EXPECT_TRUE(CompareSides(a, b).passed);
  Checkpoint plain;
  AddTensor(&plain, "w", {2.0F});
  EXPECT_FALSE(CompareSides(plain, b).passed);
}

TEST(Compare, RanksANanBeforeEveryDistance) {
  Checkpoint a;
  Checkpoint b;
  AddTensor(&a, "far", {1});
  AddTensor(&b, "far", {1000});
  AddTensor(&a, "nan", {1});
  AddTensor(&b, "nan", {NAN});
  const Comparison c = CompareSides(a, b);
  ASSERT_EQ(c.worst.size(), 2U);
  EXPECT_EQ(c.worst[0].name, "nan");
  EXPECT_EQ(c.worst[0].incomparable, 1);
}

TEST(ToJsonReport, HasEveryFieldOfTheContract) {
  Checkpoint a;
  Checkpoint b;
  AddTensor(&a, "w", {1});
  AddTensor(&b, "w", {2});
  ASSERT_OK_AND_ASSIGN(const Value v, ParseJson(ToJsonReport(CompareSides(a, b))));
  for (const char* key : {"passed", "num_baseline", "num_roundtrip", "num_common", "missing_keys", "extra_keys",
                          "shape_mismatches", "num_exact_matches", "num_close_matches", "num_different", "mismatched_keys",
                          "max_abs_diff", "mean_abs_diff", "num_bit_identical", "dtype_mismatches", "nonfinite",
                          "config_differences", "slots", "worst"}) {
    EXPECT_NE(v.Find(key), nullptr) << key;
  }
  EXPECT_EQ(v.GetBool("passed"), false);
  EXPECT_EQ(v.GetInt("slots.param.num_different"), 1);
}

}  // namespace
}  // namespace crossdock::verify
