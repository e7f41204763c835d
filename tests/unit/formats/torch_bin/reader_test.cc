// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <iterator>

#include "formats/torch_bin/torch_bin.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::torch_bin {
namespace {

using ::testing::HasSubstr;

std::string Golden(const std::string& name) {
  std::ifstream in(CROSSDOCK_SOURCE_DIR "/tests/golden/torch_zip/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::unique_ptr<io::MemoryStorage> With(const std::map<std::string, std::string>& files) {
  auto storage = std::make_unique<io::MemoryStorage>();
  EXPECT_THAT(io::MakeDirs(*storage, "/m"), IsOk());
  for (const auto& [name, content] : files) EXPECT_THAT(io::WriteSmallFile(*storage, "/m/" + name, content), IsOk());
  return storage;
}

TEST(TorchBinReader, ReadsViewsOfBothFormsAlike) {
  for (const char* name : {"views.pt", "legacy_views.pt"}) {
    const auto storage = With({{"pytorch_model.bin", Golden(name)}, {"config.json", "{\"a\": 1}"}});
    ASSERT_TRUE(IsTorchBin(*storage, "/m"));
    ASSERT_OK_AND_ASSIGN(const auto reader, OpenTorchBin(*storage, "/m"));
    const Catalog& catalog = reader->catalog();
    EXPECT_FALSE(catalog.entries.empty());
    EXPECT_EQ(catalog.objects.at("config.json").GetInt("a"), 1);
    for (const Entry& entry : catalog.entries) {
      std::vector<Box> boxes;
      for (const Chunk& chunk : entry.chunks) {
        boxes.push_back(chunk.box);
        EXPECT_LE(chunk.bytes.end(), catalog.files[0].identity.size) << entry.name;
        EXPECT_EQ(chunk.bytes.length, chunk.box.count() * ElementSize(entry.dtype)) << entry.name;
      }
      EXPECT_THAT(CheckCover(entry.shape, boxes), IsOk()) << entry.name;
    }
  }
}

TEST(TorchBinReader, PrefersSafetensors) {
  const auto storage = With({{"pytorch_model.bin", "x"}, {"model.safetensors", "y"}});
  EXPECT_FALSE(IsTorchBin(*storage, "/m"));
  EXPECT_FALSE(IsTorchBin(*With({{"config.json", "{}"}}), "/m"));
}

TEST(TorchBinReader, RefusesByName) {
  const auto index = With({{"pytorch_model.bin.index.json", R"({"weight_map": {"w": "pytorch_model-00001-of-00002.bin"}})"}});
  EXPECT_THAT(OpenTorchBin(*index, "/m"), IsError(ErrorCode::kIncomplete, HasSubstr("`pytorch_model-00001-of-00002.bin`")));
  EXPECT_THAT(OpenTorchBin(*With({{"pytorch_model.bin", "no torch file"}}), "/m"), IsError(ErrorCode::kCorrupt, HasSubstr("pytorch_model.bin")));
  EXPECT_THAT(OpenTorchBin(*With({{"pytorch_model.bin", Golden("unsafe.pt")}}), "/m"), IsError(ErrorCode::kUnsafe, HasSubstr("pytorch_model.bin")));
  EXPECT_THAT(OpenTorchBin(*With({{"pytorch_model.bin", Golden("common.pt")}}), "/m"), IsError(ErrorCode::kUnsupported, HasSubstr("no tensor under a name")));
}

}  // namespace
}  // namespace crossdock::formats::torch_bin
