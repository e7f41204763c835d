// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/extras.h"

#include "model.h"

namespace crossdock::dialects::hf {
namespace {

TEST(Extras, ComeBackAsTheyWere) {
  Value extras = Value::MakeDict();
  extras.Set("lr", Value(0.1));
  extras.Set("whole", Value(1.0));
  extras.Set("steps", Value(std::int64_t{1} << 60));
  extras.Set("betas", Value::MakeTuple({Value(0.9), Value(0.95)}));
  extras.Set("none", Value());
  extras.Set("groups", Value::MakeList({Value::MakeDict({{Value("dtype"), Value(DType::kBF16)}}), Value(true)}));
  std::vector<std::string> dropped;
  ASSERT_OK_AND_ASSIGN(const Extras back, DecodeExtras(EncodeExtras(extras, "mcore", &dropped)));
  EXPECT_TRUE(back.values.Equals(extras));
  EXPECT_EQ(back.words, "mcore");
  EXPECT_THAT(dropped, ::testing::IsEmpty());
}

TEST(Extras, NameWhatHasNoForm) {
  Value extras = Value::MakeDict();
  extras.Set("rng", Value::MakeDict({{Value("state"), Value(Value::Bytes{"x"})}}));
  extras.Set("kept", Value(1));
  std::vector<std::string> dropped;
  ASSERT_OK_AND_ASSIGN(const Extras back, DecodeExtras(EncodeExtras(extras, "mcore", &dropped)));
  EXPECT_THAT(dropped, ::testing::ElementsAre("rng.state"));
  EXPECT_EQ(back.values.GetInt("kept"), 1);
}

TEST(Extras, RefuseOtherText) {
  for (const char* text : {"", "x", "[]", "{}", R"({"words":"m"})", R"({"words":1,"values":{}})", R"({"words":"m","values":[]})"}) {
    EXPECT_FALSE(DecodeExtras(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace crossdock::dialects::hf
