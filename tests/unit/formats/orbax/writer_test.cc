// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/orbax.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/orbax/read_back.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::HasSubstr;

Catalog Target(const std::string& name = "w") {
  Catalog target;
  Entry entry{name, Slot::kParam, DType::kF32, {4, 6}, {}};
  for (std::int64_t row = 0; row < 4; row += 2) entry.chunks.push_back({Box{{row, 0}, {2, 6}}, -1, {}, ChunkEncoding::kRaw, 0});
  target.entries.push_back(std::move(entry));
  Value row = Value::MakeDict();
  row.Set("path", Value::MakeList({Value(name)}));
  row.Set("value_type", "np.ndarray");
  target.objects["tree"] = Value::MakeList({row});
  return target;
}

TEST(OrbaxWriter, TheTreeAndTheTensorsMustFitEachOther) {
  Catalog no_tree = Target();
  no_tree.objects.clear();
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(std::move(no_tree)), IsError(ErrorCode::kUnsupported, HasSubstr("without the tree")));
  Catalog no_tensor = Target();
  no_tensor.entries.clear();
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(std::move(no_tensor)), IsError(ErrorCode::kIncomplete, HasSubstr("a leaf of the tree has no tensor")));
  Catalog no_leaf = Target();
  no_leaf.objects["tree"] = Value::MakeList();
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(std::move(no_leaf)), IsError(ErrorCode::kUnsupported, HasSubstr("no place in the tree")));
  Catalog twice = Target();
  ValueList rows = *twice.objects["tree"].as_sequence();
  rows.push_back(rows.front());
  twice.objects["tree"] = Value::MakeList(rows);
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(std::move(twice)), IsError(ErrorCode::kUnsupported, HasSubstr("one name in the store")));
}

TEST(OrbaxWriter, NamesThatSeparateKeysAreRefused) {
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(Target("a/b")), IsError(ErrorCode::kUnsupported, HasSubstr("holds a \"/\"")));
  Catalog outside = Target("..");
  outside.objects["orbax"] = *ParseJson(R"({"ocdbt": false})");
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(std::move(outside)), IsError(ErrorCode::kUnsafe, HasSubstr("`..` part")));
}

/// Encodes and appends what an executor would, then reads it back.
TEST(OrbaxWriter, CompressedChunksAreReadAsTheyWere) {
  for (const char* form : {R"({"zstd_level": 1})", R"({"zstd_level": 3, "zarr3": false})", R"({"zstd_level": 1, "ocdbt": false})"}) {
    io::MemoryStorage storage;
    ASSERT_THAT(storage.MakeDir("/7"), IsOk());
    Catalog target = Target();
    target.entries[0].shape = {5, 6};
    target.entries[0].chunks.push_back({Box{{4, 0}, {1, 6}}, -1, {}, ChunkEncoding::kRaw, 0});  // cut by the edge, stored whole
    target.objects["orbax"] = *ParseJson(form);
    const auto writer = MakeOrbaxWriter();
    ASSERT_OK_AND_ASSIGN(Placement placement, writer->LayOut(std::move(target)));
    std::string elements(5 * 6 * 4, '\0');
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<char>(i % 7);
    std::map<std::int32_t, std::int64_t> ends;
    for (Chunk& chunk : placement.catalog.entries[0].chunks) {
      EXPECT_EQ(chunk.encoding, ChunkEncoding::kEncoded);
      const auto from = static_cast<std::size_t>(chunk.box.offsets[0] * 24);
      const auto size = static_cast<std::size_t>(chunk.box.count() * 4);
      const auto number = static_cast<std::int32_t>(&chunk - placement.catalog.entries[0].chunks.data());
      ASSERT_OK_AND_ASSIGN(const std::string bytes, writer->Encode(placement.catalog, 0, number, std::as_bytes(std::span(elements).subspan(from, size))));
      EXPECT_LE(static_cast<std::int64_t>(bytes.size()), chunk.bytes.length);
      const std::string path = io::JoinPath("/7", placement.catalog.files[static_cast<std::size_t>(chunk.file)].path);
      ASSERT_THAT(io::MakeDirs(storage, io::ParentPath(path)), IsOk());
      auto file = io::Exists(storage, path) ? storage.OpenWrite(path) : storage.Create(path);
      ASSERT_THAT(file, IsOk());
      chunk.bytes = {ends[chunk.file], static_cast<std::int64_t>(bytes.size())};
      ASSERT_THAT((*file)->WriteAt(chunk.bytes.offset, std::as_bytes(std::span(bytes))), IsOk());
      ends[chunk.file] += chunk.bytes.length;
    }
    ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "/7"), IsOk());
    ASSERT_OK_AND_ASSIGN(const auto reader, OpenOrbax(storage, "/7"));
    ASSERT_OK_AND_ASSIGN(const std::string read, ReadBack(storage, *reader, 0));
    EXPECT_EQ(read, elements) << form;
  }
  Catalog high = Target();
  high.objects["orbax"] = *ParseJson(R"({"zstd_level": 23})");
  EXPECT_THAT(MakeOrbaxWriter()->LayOut(std::move(high)), IsError(ErrorCode::kUsage, HasSubstr("zstd has no such level")));
}

TEST(OrbaxWriter, TheMarkerMayBeLeftOut) {
  for (const bool marker : {true, false}) {
    io::MemoryStorage storage;
    ASSERT_THAT(storage.MakeDir("/7"), IsOk());
    Catalog target = Target();
    if (!marker) target.objects["orbax"] = *ParseJson(R"({"commit_marker": false})");
    const auto writer = MakeOrbaxWriter();
    ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(std::move(target)));
    ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "/7"), IsOk());
    const auto files = storage.Files("/7");
    EXPECT_EQ(files.contains("commit_success.txt"), marker);
    EXPECT_EQ(files.contains("items/commit_success.txt"), marker);
  }
}

TEST(OrbaxWriter, EqualCheckpointsHaveEqualBytes) {
  std::map<std::string, std::string> files[2];
  for (auto& out : files) {
    io::MemoryStorage storage;
    ASSERT_THAT(storage.MakeDir("/7"), IsOk());
    const auto writer = MakeOrbaxWriter();
    ASSERT_OK_AND_ASSIGN(const Placement placement, writer->LayOut(Target()));
    EXPECT_TRUE(placement.frames.empty());
    EXPECT_FALSE(placement.wants_crc32);
    ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "/7"), IsOk());
    ASSERT_THAT(writer->WriteMetadata(placement.catalog, storage, "/7"), IsOk());  // again, as after an interruption
    out = storage.Files("/7");
    // The plan said what would be there, and no less.
    const std::vector<FileRef> promised = writer->MetadataFiles();
    ASSERT_EQ(promised.size(), out.size());
    for (const FileRef& file : promised) {
      ASSERT_TRUE(out.contains(file.path)) << file.path;
      EXPECT_GE(file.identity.size, static_cast<std::int64_t>(out.at(file.path).size())) << file.path;
    }
  }
  EXPECT_EQ(files[0], files[1]);
}

}  // namespace
}  // namespace crossdock::formats::orbax
