// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/header.h"

#include <gtest/gtest.h>

#include "result_matchers.h"
#include "test_files.h"

namespace crossdock::formats::safetensors {
namespace {

class GoldenHeader : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenHeader, IsPrintedAgainByteForByte) {
  const auto storage = io::MakeLocalStorage();
  const std::string path = GoldenDir() + "/safetensors/" + GetParam();
  ASSERT_OK_AND_ASSIGN(const std::string bytes, io::ReadSmallFile(*storage, path));
  ASSERT_OK_AND_ASSIGN(const auto file, storage->OpenRead(path));
  ASSERT_OK_AND_ASSIGN(const Header header, ReadHeader(*file, static_cast<std::int64_t>(bytes.size())));
  EXPECT_EQ(PrintHeader(header.tensors, header.metadata), bytes.substr(0, static_cast<std::size_t>(header.data_start)));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenHeader,
                         ::testing::Values("dtypes.safetensors", "dtypes_pt.safetensors", "empty.safetensors", "empty_pt.safetensors",
                                           "f4.safetensors", "huge_empty.safetensors", "metadata_text.safetensors",
                                           "model.safetensors", "names.safetensors", "one_byte.safetensors"));

TEST(SafetensorsHeader, SortsByOffset) {
  const std::string json =
      R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  ASSERT_OK_AND_ASSIGN(const Header header, ParseHeader(json, 2, "f"));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.data_start, 8 + static_cast<std::int64_t>(json.size()));
}

TEST(SafetensorsHeader, KeepsMetadataInOrder) {
  ASSERT_OK_AND_ASSIGN(const Header header, ParseHeader(R"({"__metadata__":{"z":"1","a":"\u00e9"}})", 0, "f"));
  EXPECT_EQ(header.metadata, (Metadata{{"z", "1"}, {"a", "\xc3\xa9"}}));
}

TEST(SafetensorsHeader, ParsesAHundredThousandTensors) {
  std::vector<HeaderTensor> tensors;
  for (int i = 0; i < 100'000; ++i) {
    tensors.push_back({"model.layers." + std::to_string(i) + ".weight", DType::kBF16, {2, 4}, {16LL * i, 16}});
  }
  const std::string bytes = PrintHeader(tensors, {});
  ASSERT_OK_AND_ASSIGN(const Header header, ParseHeader(bytes.substr(8), 1'600'000, "f"));
  EXPECT_EQ(header.tensors.size(), tensors.size());
}

}  // namespace
}  // namespace crossdock::formats::safetensors
