// SPDX-License-Identifier: Apache-2.0
#include "convert/demo_model.h"

#include "base/hash.h"
#include "kernels/cast.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

TEST(DemoModel, IsTheSameEverywhere) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  const std::string data = model.storage->Files("demo").at("data");
  // Changes only when the demo is meant to change: other machines must make these bytes too.
  EXPECT_EQ(Fingerprint(data), "25dc7a458d02c5ab8e0969f67aff712d");
}

TEST(DemoModel, HasMastersThatRoundToTheirWeights) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  const std::string data = model.storage->Files("demo").at("data");
  const Catalog& catalog = model.source.reader->catalog();
  std::int64_t moved = 0;
  for (const Entry& entry : catalog.entries) {
    if (!entry.name.starts_with("param/")) continue;
    const Entry& master = catalog.entries[static_cast<std::size_t>(catalog.Find("optim/master/" + entry.name.substr(6)))];
    const std::int64_t count = CheckedCount(entry.shape);
    std::string rounded(static_cast<std::size_t>(2 * count), '\0');
    const std::string_view floats = std::string_view(data).substr(static_cast<std::size_t>(master.chunks[0].bytes.offset),
                                                                  static_cast<std::size_t>(4 * count));
    kernels::Cast(reinterpret_cast<const std::byte*>(floats.data()), DType::kF32, reinterpret_cast<std::byte*>(rounded.data()),
                  DType::kBF16, count);
    EXPECT_EQ(rounded, data.substr(static_cast<std::size_t>(entry.chunks[0].bytes.offset), rounded.size())) << entry.name;
    for (std::size_t i = 0; i < floats.size(); i += 4) moved += static_cast<std::int64_t>(floats[i] != 0 || floats[i + 1] != 0);
  }
  EXPECT_GT(moved, 250'000);  // the masters say more than the weights do
}

}  // namespace
}  // namespace crossdock::convert
