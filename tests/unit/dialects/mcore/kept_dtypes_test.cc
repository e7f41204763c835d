// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/kept_dtypes.h"

#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

TEST(KeptDTypesTest, ComeBackFromTheCommonState) {
  const KeptDTypes kept = {{"a.norm.weight", DType::kBF16}, {"b.norm.weight", DType::kF16}};
  Catalog catalog;
  Value common = Value::MakeDict();
  KeepDTypes(kept, &common);
  Value copy = Value::MakeDict();
  CarryKeptDTypes(common, &copy);
  for (const Value& state : {common, copy}) {
    catalog.objects["common"] = state;
    EXPECT_EQ(ReadKeptDTypes(catalog), kept);
  }
}

TEST(KeptDTypesTest, ANoteThatMakesNoSenseIsPassedOver) {
  Catalog catalog;
  EXPECT_TRUE(ReadKeptDTypes(catalog).empty());
  for (const char* text : {R"({"crossdock_dtypes": 3})", R"({"crossdock_dtypes": {"a": "F32", "b": "x", "c": 1}})", R"({})"}) {
    catalog.objects["common"] = *ParseJson(text);
    EXPECT_TRUE(ReadKeptDTypes(catalog).empty()) << text;
  }
  Value common = Value::MakeDict();
  KeepDTypes({}, &common);
  EXPECT_TRUE(common.as_dict()->items.empty());
}

}  // namespace
}  // namespace crossdock::dialects::mcore
