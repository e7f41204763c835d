// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/json_scan.h"

#include <string>
#include <vector>

#include "result_matchers.h"

namespace crossdock::formats::safetensors::scan {
namespace {

std::vector<std::string> Numbered(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("model.layers." + std::to_string(i) + ".weight");
  return names;
}

TEST(NameSet, TellsWhatIsThereTwice) {
  const std::vector<std::string> names = Numbered(3000);
  NameSet set(names.size());
  for (const std::string& name : names) EXPECT_TRUE(set.Add(&name)) << name;
  const std::string again = names[1234];
  EXPECT_FALSE(set.Add(&again));
}

TEST(NameSet, StaysRightWhereNamesCrowdItsTable) {
  const std::vector<std::string> names = Numbered(3000);
  NameSet set(1);
  for (const std::string& name : names) EXPECT_TRUE(set.Add(&name)) << name;
  for (const std::string& name : Numbered(3000)) EXPECT_FALSE(set.Add(&name)) << name;
}

}  // namespace
}  // namespace crossdock::formats::safetensors::scan
