// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/megatron_zarr.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/sha256.h"
#include "formats/torch_zip/torch_file.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::zarr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kArray =
    R"({"chunks": [2, 2], "compressor": null, "dtype": "<f4", "fill_value": null, "filters": null, "order": "C", "shape": [4, 2], "zarr_format": 2})";
using Files = std::map<std::string, std::string>;

std::string Torch(const Value& value) {
  auto file = torch_zip::WriteTorchFile(value, "archive");
  EXPECT_THAT(file, IsOk());
  return *file;
}

/// One tensor `w` of two chunks and one object.
Files Good() {
  Value common = Value::MakeDict();
  common.Set("iteration", Value(20));
  return {{"metadata.json", R"({"sharded_backend": "zarr", "sharded_backend_version": 1})"}, {"common.pt", Torch(common)},
          {"w/.zarray", kArray}, {"w/0.0", std::string(16, 'a')}, {"w/1.0", std::string(16, 'b')}, {"w.sync/.zarray", ""},
          {"rng_state/shard_0.1_1.2.pt", Torch(Value("state"))}};
}

std::unique_ptr<io::MemoryStorage> With(const Files& files) {
  auto storage = std::make_unique<io::MemoryStorage>();
  for (const auto& [name, content] : files) {
    const std::string path = "/r/iter_0000020/" + name;
    EXPECT_THAT(io::MakeDirs(*storage, io::ParentPath(path)), IsOk());
    EXPECT_THAT(io::WriteSmallFile(*storage, path, content), IsOk());
  }
  return storage;
}

Result<std::unique_ptr<CheckpointReader>> Open(io::Storage& storage) { return OpenMegatronZarr(storage, "/r/iter_0000020"); }

TEST(MegatronZarr, ListsArraysAndObjects) {
  const auto storage = With(Good());
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(*storage));
  const Catalog& catalog = reader->catalog();
  EXPECT_EQ(catalog.step, 20);
  ASSERT_EQ(catalog.entries.size(), 1U);
  EXPECT_EQ(catalog.entries[0].name, "w");
  EXPECT_EQ(catalog.entries[0].chunks.size(), 2U);
  const Chunk& second = catalog.entries[0].chunks[1];
  EXPECT_EQ(catalog.files[static_cast<std::size_t>(second.file)].path, "w/1.0");
  ASSERT_OK_AND_ASSIGN(const ByteRange range, reader->Locate(0, 1));
  EXPECT_EQ(range, (ByteRange{0, 16}));
  EXPECT_EQ(catalog.objects.at("common").GetInt("iteration"), 20);
  ASSERT_EQ(catalog.object_refs.size(), 1U);
  EXPECT_EQ(catalog.object_refs[0].name, "rng_state/shard_0.1_1.2");
  ASSERT_OK_AND_ASSIGN(const Value object, reader->LoadObject(catalog.object_refs[0]));
  EXPECT_TRUE(object.Equals(Value::MakeList({Value("state")})));
  EXPECT_TRUE(catalog.notices.empty());
}

TEST(MegatronZarr, TakesBothFormsOfObjectNames) {
  Files files = Good();
  files["a/shard_0_1.pt"] = Torch(Value(1));
  files["b/shard_0.0_1.pt"] = Torch(Value(2));  // the older with_suffix took the last number for a suffix
  const auto storage = With(files);
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(*storage));
  std::vector<std::string> names;
  for (const ObjectRef& ref : reader->catalog().object_refs) names.push_back(ref.name);
  EXPECT_THAT(names, ElementsAre("a/shard_0_1", "b/shard_0.0_1", "rng_state/shard_0.1_1.2"));
}

TEST(MegatronZarr, TellsOfDirectoriesThatItPassesOver) {
  Files files = Good();
  files["notes/readme.txt"] = "x";
  files["hf/config.json"] = "{}";
  const auto storage = With(files);
  ASSERT_OK_AND_ASSIGN(const auto reader, Open(*storage));
  EXPECT_THAT(reader->catalog().notices, ElementsAre(HasSubstr("`notes`")));
}

/// An array's bytes in row-major order, put together from its chunks.
std::string Assemble(io::Storage& storage, const Catalog& catalog, const Entry& entry) {
  const auto element = static_cast<std::size_t>(ElementSize(entry.dtype));
  std::string out(static_cast<std::size_t>(CheckedCount(entry.shape)) * element, '?');
  const Dims strides = RowMajorStrides(entry.shape);
  for (const Chunk& chunk : entry.chunks) {
    const std::string path = io::JoinPath(catalog.root, catalog.files[static_cast<std::size_t>(chunk.file)].path);
    const auto content = io::ReadSmallFile(storage, path);
    EXPECT_THAT(content, IsOk());
    Dims at = chunk.box.offsets;
    for (std::int64_t i = 0; i < chunk.box.count(); ++i) {
      std::int64_t place = 0;
      for (std::size_t axis = 0; axis < at.size(); ++axis) place += at[axis] * strides[axis];
      content->copy(out.data() + static_cast<std::size_t>(place) * element, element,
                    static_cast<std::size_t>(chunk.bytes.offset) + static_cast<std::size_t>(i) * element);
      for (std::size_t axis = at.size(); axis-- > 0;) {
        if (++at[axis] < chunk.box.offsets[axis] + chunk.box.sizes[axis]) break;
        at[axis] = chunk.box.offsets[axis];
      }
    }
  }
  return out;
}

TEST(MegatronZarr, ReadsWhatMegatronCore012Wrote) {
  const auto storage = io::MakeLocalStorage();
  ASSERT_OK_AND_ASSIGN(const auto reader, OpenMegatronZarr(*storage, CROSSDOCK_SOURCE_DIR "/tests/golden/zarr/old_0_12/iter_0000020"));
  const Catalog& catalog = reader->catalog();
  const Value expected = ReadExpected("zarr");
  const Value* tensors = expected.FindPath("old_0_12")->Find("tensors");
  ASSERT_EQ(catalog.entries.size(), tensors->as_dict()->items.size());
  for (const Entry& entry : catalog.entries) {
    const Value* row = tensors->Find(entry.name);
    ASSERT_NE(row, nullptr) << entry.name;
    EXPECT_EQ(DTypeName(entry.dtype), row->GetString("dtype")) << entry.name;
    EXPECT_EQ(Sha256Hex(Assemble(*storage, catalog, entry)), row->GetString("sha256")) << entry.name;
  }
  EXPECT_EQ(catalog.objects.at("common").GetInt("iteration"), 20);
  EXPECT_EQ(catalog.object_refs.size(), 4U);
  for (const ObjectRef& ref : catalog.object_refs) EXPECT_THAT(reader->LoadObject(ref), IsOk()) << ref.name;
  EXPECT_TRUE(catalog.notices.empty());
}

struct BrokenIteration {
  const char* name;
  Files changes;               ///< an empty text removes the file
  ErrorCode code;
  const char* says;
};
void PrintTo(const BrokenIteration& c, std::ostream* out) { *out << c.name; }
class MegatronZarrBroken : public ::testing::TestWithParam<BrokenIteration> {};

TEST_P(MegatronZarrBroken, IsRefusedByName) {
  Files files = Good();
  for (const auto& [name, content] : GetParam().changes) {
    if (content.empty()) files.erase(name);
    if (!content.empty()) files[name] = content;
  }
  const auto storage = With(files);
  const auto reader = Open(*storage);
  EXPECT_THAT(reader, IsError(GetParam().code, HasSubstr(GetParam().says)));
  ASSERT_FALSE(reader.has_value());
  EXPECT_THAT(reader.error().ToString(), HasSubstr("/r/iter_0000020"));
}

INSTANTIATE_TEST_SUITE_P(
    All, MegatronZarrBroken,
    ::testing::Values(BrokenIteration{"missing_chunk", {{"w/1.0", ""}}, ErrorCode::kIncomplete, "`1.0`"},
                      BrokenIteration{"no_metadata", {{"w/.zarray", ""}}, ErrorCode::kIncomplete, ".zarray"},
                      BrokenIteration{"only_locks", {{"w/.zarray", ""}, {"w/0.0", ""}, {"w/1.0", ""}}, ErrorCode::kIncomplete, "lock files"},
                      BrokenIteration{"short_chunk", {{"w/1.0", "short"}}, ErrorCode::kCorrupt, "16 bytes in `1.0`"},
                      BrokenIteration{"stray_chunk", {{"w/2.0", "more"}}, ErrorCode::kCorrupt, "`2.0`"},
                      BrokenIteration{"chunk_is_directory", {{"w/1.0", ""}, {"w/1.0/x", "x"}}, ErrorCode::kCorrupt, "expected a file"},
                      BrokenIteration{"malformed", {{"w/.zarray", "{"}}, ErrorCode::kCorrupt, ".zarray"},
                      BrokenIteration{"another_backend", {{"metadata.json", R"({"sharded_backend": "torch_dist"})"}}, ErrorCode::kUnsupported, "zarr"}),
    [](const auto& row) { return row.param.name; });

TEST(MegatronZarr, FollowsNoLinkOutOfItsDirectory) {
  const std::filesystem::path root = std::filesystem::temp_directory_path() / ("crossdock-zarr-" + std::to_string(::getpid()));
  const auto storage = io::MakeLocalStorage();
  for (const char* name : {"w", "w/1.0", "w/.zarray", "rng_state/shard_0.1_1.2.pt"}) {
    std::filesystem::remove_all(root);
    for (const auto& [file, content] : Good()) {
      const std::string path = (root / "iter_0000020" / file).string();
      ASSERT_THAT(io::MakeDirs(*storage, io::ParentPath(path)), IsOk());
      ASSERT_THAT(io::WriteSmallFile(*storage, path, content), IsOk());
    }
    ASSERT_THAT(OpenMegatronZarr(*storage, (root / "iter_0000020").string()), IsOk());
    std::filesystem::rename(root / "iter_0000020" / name, root / "elsewhere");
    std::filesystem::create_symlink(root / "elsewhere", root / "iter_0000020" / name);
    EXPECT_THAT(OpenMegatronZarr(*storage, (root / "iter_0000020").string()), IsError(ErrorCode::kUnsafe, HasSubstr("symbolic link"))) << name;
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace crossdock::formats::zarr
