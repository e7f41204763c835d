// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/tree.h"

#include "result_matchers.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::HasSubstr;

constexpr const char* kJson =
    R"json({"tree_metadata": {"('opt', '0')": {"key_metadata": [{"key": "opt", "key_type": 2}, {"key": "0", "key_type": 1}], "value_metadata": {"value_type": "None", "skip_deserialize": true}}, "('params', 'a')": {"key_metadata": [{"key": "params", "key_type": 2}, {"key": "a", "key_type": 2}], "value_metadata": {"value_type": "jax.Array", "skip_deserialize": false, "write_shape": [8, 8]}}, "('step',)": {"key_metadata": [{"key": "step", "key_type": 2}], "value_metadata": {"value_type": "scalar", "skip_deserialize": false}}}, "use_ocdbt": true, "use_zarr3": true, "store_array_data_equal_to_fill_value": true, "custom_metadata": null})json";

TEST(OrbaxTree, ReadsWhatOrbaxWroteAndPrintsTheSame) {
  ASSERT_OK_AND_ASSIGN(const Tree tree, ParseTree(kJson));
  EXPECT_EQ(tree.use_ocdbt, true);
  EXPECT_EQ(tree.use_zarr3, true);
  EXPECT_TRUE(tree.stores_zeros);
  EXPECT_EQ(ToJson(tree.rows, 0),
            R"([{"path": ["opt", 0], "value_type": "None"}, {"path": ["params", "a"], "value_type": "jax.Array"}, {"path": ["step"], "value_type": "scalar"}])");
  const auto shape = [](const std::string& name) {
    EXPECT_EQ(name, "params.a");
    return Shape{8, 8};
  };
  EXPECT_EQ(PrintTree(tree, shape), kJson);
}

TEST(OrbaxTree, OlderFilesSayLess) {
  ASSERT_OK_AND_ASSIGN(const Tree tree, ParseTree(R"({"tree_metadata": {}})"));
  EXPECT_EQ(tree.use_ocdbt, std::nullopt);
  EXPECT_EQ(tree.use_zarr3, std::nullopt);
  EXPECT_FALSE(tree.stores_zeros);
}

TEST(OrbaxTree, NamesAreKeysJoinedByDots) {
  ASSERT_OK_AND_ASSIGN(const std::string name, NameOfPath(Value::MakeList({"opt_state", 0, "mu"})));
  EXPECT_EQ(name, "opt_state.0.mu");
  EXPECT_THAT(NameOfPath(Value::MakeList({Value(1.5)})), IsError(ErrorCode::kCorrupt, HasSubstr("neither a name nor an index")));
  EXPECT_THAT(NameOfPath(Value("a")), IsError(ErrorCode::kCorrupt, HasSubstr("no list")));
}

TEST(OrbaxTree, TuplesLookAsPythonPrintsThem) {
  EXPECT_EQ(PythonTuple({"step"}), "('step',)");
  EXPECT_EQ(PythonTuple({"a", "0"}), "('a', '0')");
  EXPECT_EQ(PythonTuple({"it's", "\"", "'\"", "a\\b\n\x01"}), R"json(("it's", '"', '\'"', 'a\\b\n\x01'))json");
  EXPECT_EQ(PythonTuple({}), "()");
}

TEST(OrbaxTree, WhatIsMalformedIsTold) {
  struct {
    const char* from;
    const char* to;
    const char* says;
  } const cases[] = {
      {"\"tree_metadata\"", "\"tree\"", "no `tree_metadata`"},
      {"\"key_type\": 1", "\"key_type\": 3", "unknown type"},
      {"\"key\": \"0\"", "\"key\": \"x\"", "no number"},
      {"\"key\": \"0\"", "\"key\": \"-1\"", "no number"},
      {"\"key\": \"opt\", ", "", "without `key`"},
      {"\"value_type\": \"None\", ", "", "without `value_type`"},
      {"\"key_metadata\": [{\"key\": \"opt\"", "\"keys\": [{\"key\": \"opt\"", "without `key_metadata`"},
  };
  for (const auto& c : cases) {
    std::string text = kJson;
    text.replace(text.find(c.from), std::string(c.from).size(), c.to);
    EXPECT_THAT(ParseTree(text), IsError(ErrorCode::kCorrupt, HasSubstr(c.says))) << c.to;
  }
}

}  // namespace
}  // namespace crossdock::formats::orbax
