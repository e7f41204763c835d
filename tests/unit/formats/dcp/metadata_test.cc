// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/metadata.h"

#include "formats/dcp/metadata_writer.h"
#include "result_matchers.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::dcp {
namespace {

Result<Metadata> Parse(std::string_view bytes) {
  pickle::ByteSource source(bytes);
  return ParseMetadata(source);
}

/// Layers of `count` chunks each, in one file.
std::string Emitted(std::int64_t tensors, std::int64_t count) {
  Catalog catalog;
  catalog.files.push_back({"__0_0.distcp", {}});
  for (std::int64_t t = 0; t < tensors; ++t) {
    Entry& entry = catalog.entries.emplace_back(
        Entry{.name = "layer." + std::to_string(1'000'000 + t), .dtype = DType::kBF16, .shape = {count, 64}, .chunks = {}});
    for (std::int64_t c = 0; c < count; ++c) {
      Chunk& chunk = entry.chunks.emplace_back();
      chunk.box = {{c, 0}, {1, 64}};
      chunk.file = 0;
      chunk.bytes = {(t * count + c) * 1000, 900};
    }
  }
  catalog.object_refs.push_back({"extra/shard_0_1", 0, {1, 2}});
  std::string out;
  const Status status = EmitMetadata(
      catalog, {}, [&](const Entry&, const Chunk& chunk) -> Result<BlobPlace> { return BlobPlace{"__0_0.distcp", chunk.bytes}; },
      [&](std::string_view piece) -> Status {
        out += piece;
        return OkStatus();
      });
  EXPECT_THAT(status, IsOk());
  return out;
}

TEST(DcpMetadata, ReadsBackWhatIsEmitted) {
  ASSERT_OK_AND_ASSIGN(const Metadata metadata, Parse(Emitted(1100, 3)));
  ASSERT_EQ(metadata.tensors.size(), 1100U);
  ASSERT_EQ(metadata.places.size(), 3301U);
  EXPECT_EQ(metadata.files, std::vector<std::string>{"__0_0.distcp"});
  EXPECT_EQ(metadata.objects, std::vector<std::string>{"extra/shard_0_1"});
  EXPECT_EQ(metadata.tensors[1099].name, "layer.1001099");
  EXPECT_EQ(metadata.tensors[1099].dtype, DType::kBF16);
  EXPECT_EQ(metadata.BoxAt(metadata.tensors[1099].boxes[2]), (Box{{2, 0}, {1, 64}}));
  EXPECT_EQ(metadata.OffsetsOf(metadata.places[3299]), Dims({2, 0}));
  EXPECT_EQ(metadata.places[3299].bytes, (ByteRange{3299 * 1000, 900}));
}

TEST(DcpMetadata, AChunkTakesFewBytes) {
  const auto few = Emitted(10, 100).size();
  const auto many = Emitted(10, 1100).size();
  EXPECT_LT((many - few) / 10'000, 110U);
}

TEST(DcpMetadata, OldAndNewFormsOfMegatronAreRead) {
  for (const char* name : {"adam_tp2_pp2", "old_0_12", "old_0_12_flat", "numbered_pp2"}) {
    ASSERT_OK_AND_ASSIGN(const Metadata metadata, Parse(ReadGolden(std::string("dcp/") + name + "/iter_0000020/.metadata")));
    EXPECT_FALSE(metadata.tensors.empty());
    EXPECT_EQ(metadata.flattened.empty(), std::string(name) != "old_0_12_flat");
  }
}

TEST(DcpMetadata, NoTruncationIsTakenForTheWhole) {
  const std::string whole = ReadGolden("dcp/numbered_pp2/iter_0000020/.metadata");
  for (std::size_t size = 0; size < whole.size(); size += size < 1000 ? 1 : 101) {
    EXPECT_FALSE(Parse(std::string_view(whole).substr(0, size)).has_value()) << size;
  }
}

}  // namespace
}  // namespace crossdock::formats::dcp
