// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/side_json.h"

#include "result_matchers.h"

namespace crossdock::formats::orbax {
namespace {

Value Rows() {
  const auto rows = ParseJson(
      R"([{"path": ["params", "a"], "value_type": "jax.Array"}, {"path": ["key"], "value_type": "jax.Array", "ext_metadata": {"random_key_impl": "unsafe_rbg"}},
          {"path": ["n"], "value_type": "np.ndarray"}, {"path": ["s"], "value_type": "string", "text": "hello"}, {"path": ["e"], "value_type": "None"}])");
  return *rows;
}
Shape OneShape(const std::string&) { return {2, 3}; }

TEST(OrbaxSideJson, ShardingsAreKeyedByBase64) {
  EXPECT_EQ(ShardingJson(Rows()),
            R"({"cGFyYW1zLmE=": "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": \"cpu:0\"}", "a2V5": "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": \"cpu:0\"}"})");
}

TEST(OrbaxSideJson, StringsAndKindsOfKeys) {
  EXPECT_EQ(StringsJson(Rows()), R"({"s": "hello"})");
  EXPECT_EQ(ArrayMetadatasJson(Rows(), OneShape),
            R"({"array_metadatas": [{"array_metadata": {"param_name": "params.a", "write_shape": [2, 3], "chunk_shape": [2, 3], "ext_metadata": null}}, )"
            R"({"array_metadata": {"param_name": "key", "write_shape": [2, 3], "chunk_shape": [2, 3], "ext_metadata": {"random_key_impl": "unsafe_rbg"}}}]})");
}

TEST(OrbaxSideJson, NothingToSayIsNoFile) {
  const Value rows = *ParseJson(R"([{"path": ["n"], "value_type": "np.ndarray"}])");
  EXPECT_EQ(ShardingJson(rows), "");
  EXPECT_EQ(StringsJson(rows), "");
  EXPECT_EQ(ArrayMetadatasJson(rows, OneShape), "");
}

TEST(OrbaxSideJson, TheStepNamesItsItemOrBothAreOne) {
  const Value custom = *ParseJson(R"({"scan_layers": true})");
  EXPECT_EQ(StepJson({"items"}, "a.B", custom),
            R"({"item_handlers": {"items": "a.B"}, "metrics": {}, "performance_metrics": {}, "init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 1, "custom_metadata": {"scan_layers": true}})");
  EXPECT_EQ(ParseJson(StepJson({}, "a.B", custom))->GetString("item_handlers"), "a.B");
}

}  // namespace
}  // namespace crossdock::formats::orbax
