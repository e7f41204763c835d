// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"
#include "formats/orbax/orbax.h"
#include "result_matchers.h"
#include "unit/formats/orbax/read_back.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) { return std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/orbax/" + name; }

struct GoldenCase {
  const char* name;
  const char* path;
  std::optional<std::int64_t> step;
  bool ocdbt, zarr3;
};
void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.name; }
class OrbaxGolden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(OrbaxGolden, EveryArrayIsWhatWasSaved) {
  const GoldenCase& c = GetParam();
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const std::string text, io::ReadSmallFile(*storage, Golden("expected.json")));
  ASSERT_OK_AND_ASSIGN(const Value expected, ParseJson(text));
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenOrbax(*storage, Golden(c.path)));
  const Catalog& catalog = reader->catalog();
  EXPECT_EQ(catalog.format, "orbax");
  EXPECT_EQ(catalog.step, c.step);
  EXPECT_EQ(catalog.objects.at("orbax").GetBool("ocdbt"), c.ocdbt);
  EXPECT_EQ(catalog.objects.at("orbax").GetBool("zarr3"), c.zarr3);
  const Value& wanted = *expected.Find(c.name);
  ASSERT_EQ(catalog.entries.size(), wanted.as_dict()->items.size());
  for (std::size_t i = 0; i < catalog.entries.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    const Value* row = wanted.Find(entry.name);
    ASSERT_NE(row, nullptr) << entry.name;
    EXPECT_EQ(DTypeName(entry.dtype), row->GetString("dtype")) << entry.name;
    EXPECT_EQ(ToString(entry.shape), ToJson(*row->Find("shape"), 0)) << entry.name;
    ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadBack(*storage, *reader, static_cast<std::int32_t>(i)));
    EXPECT_EQ(Sha256Hex(bytes), row->GetString("sha256")) << entry.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OrbaxGolden,
                         ::testing::Values(GoldenCase{"v0_zarr3", "v0_zarr3/7", 7, true, true}, GoldenCase{"v0_zarr2", "v0_zarr2/7/items", 7, true, false},
                                           GoldenCase{"directories_zarr3", "directories_zarr3/7", 7, false, true},
                                           GoldenCase{"directories_zarr2", "directories_zarr2/7", 7, false, false}, GoldenCase{"chunked", "chunked/7", 7, true, true},
                                           GoldenCase{"flat", "flat", std::nullopt, true, true}, GoldenCase{"v1", "v1/3", 3, true, true},
                                           GoldenCase{"foreign", "foreign", std::nullopt, true, true}),
                         [](const auto& row) { return row.param.name; });

TEST(OrbaxReader, TellsTheTreeAndWhatWasSavedBesideIt) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenOrbax(*storage, Golden("v0_zarr3/7")));
  const Catalog& catalog = reader->catalog();
  EXPECT_EQ(catalog.objects.at("custom_metadata").GetBool("scan_layers"), true);
  EXPECT_EQ(catalog.objects.at("orbax").GetString("handler"), kPyTreeHandler);
  const std::string tree = ToJson(catalog.objects.at("tree"), 0);
  EXPECT_THAT(tree, HasSubstr(R"({"path": ["opt_state", 0, "mu"], "value_type": "np.ndarray"})"));
  EXPECT_THAT(tree, HasSubstr(R"({"path": ["opt_state", 1], "value_type": "None"})"));
  EXPECT_THAT(tree, HasSubstr(R"({"path": ["text"], "value_type": "string", "text": "hello"})"));
  EXPECT_THAT(tree, HasSubstr(R"({"path": ["empty"], "value_type": "Dict"})"));
  EXPECT_THAT(catalog.notices, Contains(HasSubstr("int4")));
  EXPECT_EQ(catalog.Find("text"), -1);
}

TEST(OrbaxReader, KeepsNoObjects) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenOrbax(*storage, Golden("flat")));
  EXPECT_THAT(reader->LoadObject({}), IsError(ErrorCode::kUnsupported, HasSubstr("no objects")));
}

}  // namespace
}  // namespace crossdock::formats::orbax
