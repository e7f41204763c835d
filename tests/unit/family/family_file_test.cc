// SPDX-License-Identifier: Apache-2.0
#include "family/family_file.h"

#include <algorithm>

#include "family/row_syntax.h"
#include "result_matchers.h"

namespace crossdock::family {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kHead = "family = \"mine\"\ninclude = \"dense\"\n";

std::string WithRow(std::string_view row) {
  return std::string(kHead) + "[[group]]\nrules = [\n  " + std::string(row) + ",\n]\n";
}

TEST(RowSyntaxTest, GroupsAdvanceTogether) {
  ASSERT_OK_AND_ASSIGN(const std::int64_t count, GroupCount("x.{q,k,v}_{a,b,c}.{l}"));
  EXPECT_EQ(count, 3);
  EXPECT_EQ(ExpandGroups("x.{q,k,v}_{a,b,c}.{l}", 1), "x.k_b.{l}");
  EXPECT_EQ(FillIndices("x.{l}.y", {{"l", 12}}), "x.12.y");
  EXPECT_FALSE(GroupCount("{a,b}{c,d,e}").has_value());
  EXPECT_FALSE(GroupCount("{a,b").has_value());
  EXPECT_FALSE(GroupCount("a}b").has_value());
}

TEST(RowSyntaxTest, TargetsExpandTheirOperations) {
  ASSERT_OK_AND_ASSIGN(const RowTarget each, ParseTarget("self.{a,b,c} : {heads, scale:1/sqrt(d)|heads|T}", 3));
  EXPECT_THAT(each.ops, ElementsAre(ElementsAre("heads", "scale:1/sqrt(d)"), ElementsAre("heads"), ElementsAre("T")));
  ASSERT_OK_AND_ASSIGN(const RowTarget joined, ParseTarget("fc1.weight : gate_up", 2));
  EXPECT_THAT(joined.ops, ElementsAre(ElementsAre("gate_up")));
  ASSERT_OK_AND_ASSIGN(const RowTarget none, ParseTarget("-", 2));
  EXPECT_EQ(none.name, "-");
  EXPECT_FALSE(ParseTarget("one : id", 2).has_value());             // nothing joins the two
  EXPECT_FALSE(ParseTarget("one : qkv", 2).has_value());            // joins three
  EXPECT_FALSE(ParseTarget("{a,b} : gate_up", 2).has_value());      // has nothing to join
  EXPECT_FALSE(ParseTarget("{a,b} : {T|T|T}", 2).has_value());
  EXPECT_FALSE(ParseTarget("one : scale", 1).has_value());          // needs an argument
  EXPECT_FALSE(ParseTarget("one : T:2", 1).has_value());            // takes none
  EXPECT_FALSE(ParseTarget("- : id", 1).has_value());
}

TEST(FamilyFileTest, SpellingsAndCopiesNameTheRowsAndIndicesOfTheFamily) {
  const auto spelled = [](std::string_view row) { return std::string(kHead) + "[spellings]\nx = [" + std::string(row) + "]\n"; };
  const struct {
    std::string text;
    std::string expected;
  } cases[] = {
      {spelled(R"(["model.nothing", "y"])"), "names no row of the family"},
      {spelled(R"(["model.layers.{l}.mlp.{gate,up}_proj.weight", "model.layers.mlp.both : gate_up"])"), "must keep the index l"},
      {spelled(R"(["model.layers.{l}.mlp.{gate,up}_proj.weight", "model.layers.{l}.mlp.both"])"), "does not join"},
      {spelled(R"(["model.norm.weight", "-"])"), "a spelling has every tensor"},
      {spelled(R"(["model.norm.weight"])"), "two strings"},
      {std::string(kHead) + "[[group]]\ncopies = [[\"again.{l}\", \"model.norm.weight\"]]\n", "{l} is no index"},
  };
  for (const auto& one : cases) EXPECT_THAT(ParseFamilyFile(one.text, "mine.toml"), IsError(ErrorCode::kUsage, HasSubstr(one.expected))) << one.text;
  ASSERT_OK_AND_ASSIGN(const FamilyFile file, ParseFamilyFile(std::string(kHead) + "[spellings]\nnested = { \"model.\" = \"model.text.\" }\n", "mine.toml"));
  EXPECT_EQ(file.spellings.at("nested").prefixes.at("model."), "model.text.");
}

TEST(FamilyFileTest, SyntaxErrorsNameLineAndColumn) {
  const Result<FamilyFile> file = ParseFamilyFile("family = \"x\"\n[letters\n", "mine.toml");
  ASSERT_THAT(file, IsError(ErrorCode::kUsage, HasSubstr("line 2")));
  EXPECT_THAT(file, IsError(ErrorCode::kUsage, HasSubstr("column")));
  EXPECT_EQ(file.error().path, "mine.toml");
}

TEST(FamilyFileTest, SemanticErrorsNameTheLine) {
  const struct {
    std::string text;
    std::string expected;
  } cases[] = {
      {WithRow(R"(["x", "zz", "y", "-"])"), "\"zz\" is no letter"},
      {WithRow(R"(["x ? sunday", "h", "y", "-"])"), "\"sunday\" is no condition"},
      {WithRow(R"(["x", "h", "y : fold", "-"])"), "\"fold\" is no operation"},
      {WithRow(R"(["x", "h", "y"])"), "four strings"},
      {WithRow(R"(["x.{l}", "h", "y", "-"])"), "{l} is no index"},
      {WithRow(R"(["x ? untied && moe", "h", "y", "-"])"), "\"moe\" is no condition"},
      {WithRow(R"(["x", "h", "y.{l}", "-"])"), "no index of the group"},
      {WithRow(R"(["x.{a,b}", "{h,h,h}", "y.{a,b}", "-"])"), "alternatives"},
      {WithRow(R"(["x", "h", "y : scale:1/zz", "-"])"), "\"zz\" is no letter"},
      {WithRow(R"(["x ?", "h", "y", "-"])"), "word after"},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(ParseFamilyFile(one.text, "mine.toml"), IsError(ErrorCode::kUsage, HasSubstr(one.expected))) << one.text;
    EXPECT_THAT(ParseFamilyFile(one.text, "mine.toml"), IsError(ErrorCode::kUsage, HasSubstr("line 5"))) << one.text;
  }
}

TEST(FamilyFileTest, UnknownKeysAndWordsAreErrors) {
  EXPECT_THAT(ParseFamilyFile("family = \"x\"\ncolour = \"red\"\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("colour")));
  EXPECT_THAT(ParseFamilyFile("family = \"x\"\nwindow = \"sometimes\"\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("none, always or by_flag")));
  EXPECT_THAT(ParseFamilyFile(std::string(kHead) + "[[group]]\ndialect = \"hf\"\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("mcore or maxtext")));
  EXPECT_THAT(ParseFamilyFile("include = \"dense\"\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("does not name its family")));
  EXPECT_THAT(ParseFamilyFile("family = \"x\"\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("no [[group]]")));
  EXPECT_THAT(ParseFamilyFile("family = \"x\"\ninclude = \"../dense\"\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("no built-in")));
  EXPECT_THAT(ParseFamilyFile(std::string(kHead) + "[letters]\nz = { jax = \"z\" }\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("jax")));
  EXPECT_THAT(ParseFamilyFile(std::string(kHead) + "[letters]\nz = { hf = \"z\", default = \"y+\" }\n", "m"), IsError(ErrorCode::kUsage, HasSubstr("y+")));
}

TEST(FamilyFileTest, AnIncludingFileReplacesRowsInPlace) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile plain, ParseFamilyFile(kHead, "m"));
  ASSERT_OK_AND_ASSIGN(const FamilyFile own, ParseFamilyFile(WithRow(R"(["model.norm.weight", "h", "decoder.final_norm.weight", "-"])"), "m"));
  ASSERT_EQ(own.groups.size(), plain.groups.size());
  EXPECT_EQ(own.groups[0].rows.size(), plain.groups[0].rows.size());
  EXPECT_EQ(own.groups[0].rows[1].hub, "model.norm.weight");
  EXPECT_EQ(own.groups[0].rows[1].targets.at("mcore").name, "decoder.final_norm.weight");
  EXPECT_EQ(plain.groups[0].rows[1].targets.at("mcore").name, "decoder.final_layernorm.weight");
}

TEST(FamilyFileTest, BuiltinFamiliesAreSorted) {
  std::vector<std::string> names;
  for (const FamilyFile& family : BuiltinFamilies()) names.push_back(family.name);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_GE(names.size(), 9U);
  EXPECT_EQ(std::count(names.begin(), names.end(), "moe"), 0);  // a base for others is no family
}

TEST(FamilyFileTest, AnIncludedModelCanBeAPart) {
  ASSERT_OK_AND_ASSIGN(const FamilyFile file, ParseFamilyFile("family = \"mine\"\ninclude = { file = \"qwen2\", mcore = \"language_model.\", hub = \"model.text.\" }\n", "mine.toml"));
  EXPECT_EQ(file.language_model->family, "qwen2");
  EXPECT_EQ(file.language_model->Within("model.norm.weight"), "model.text.norm.weight");
  EXPECT_EQ(file.language_model->Alone("model.text.norm.weight"), "model.norm.weight");
  EXPECT_EQ(file.language_model->Alone("model.norm.weight"), std::nullopt);
  EXPECT_EQ(file.language_model->Alone("lm_head.weight"), "lm_head.weight");
  const Group& whole = file.groups.at(0);
  EXPECT_EQ(whole.rows.at(0).hub, "model.text.embed_tokens.weight");
  EXPECT_EQ(whole.rows.at(2).hub, "lm_head.weight");
  EXPECT_EQ(whole.prefixes.at("mcore"), "language_model.");
  EXPECT_EQ(file.groups.at(1).hub_prefix, "model.text.layers.{l}.");
  EXPECT_EQ(file.groups.at(1).prefixes.at("mcore"), "language_model.decoder.layers.{l}.");
  EXPECT_THAT(ParseFamilyFile("family = \"x\"\ninclude = { mcore = \"a.\" }\n", "mine.toml"), IsError(ErrorCode::kUsage, HasSubstr("names no file")));
  EXPECT_THAT(ParseFamilyFile("family = \"x\"\ninclude = { fiel = \"qwen2\" }\n", "mine.toml"), IsError(ErrorCode::kUsage, HasSubstr("no key of include")));
}

}  // namespace
}  // namespace crossdock::family
