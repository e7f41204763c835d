// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/orbax.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

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
