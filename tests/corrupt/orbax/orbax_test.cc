// SPDX-License-Identifier: Apache-2.0
// Checkpoints of the real Orbax, damaged by name.
#include <functional>

#include "formats/orbax/orbax.h"
#include "io/memory_storage.h"
#include "result_matchers.h"
#include "unit/formats/orbax/read_back.h"

namespace crossdock::formats::orbax {
namespace {

using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

void Collect(io::Storage& storage, const std::string& dir, const std::string& prefix, Files& out) {
  const auto entries = storage.List(dir);
  ASSERT_THAT(entries, IsOk());
  for (const io::DirEntry& entry : *entries) {
    const std::string path = io::JoinPath(dir, entry.name);
    if (entry.kind == io::FileKind::kDirectory) {
      Collect(storage, path, prefix + entry.name + "/", out);
    } else {
      const auto bytes = io::ReadSmallFile(storage, path);
      ASSERT_THAT(bytes, IsOk());
      out[prefix + entry.name] = *bytes;
    }
  }
}

Files Golden(const std::string& name) {
  const auto storage = io::MakeLocalStorage();
  Files out;
  Collect(*storage, std::string(CROSSDOCK_SOURCE_DIR) + "/tests/golden/orbax/" + name, "", out);
  return out;
}

/// Opens and reads every tensor.
Status ReadEverything(const Files& files) {
  io::MemoryStorage storage;
  for (const auto& [path, bytes] : files) {
    CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, io::ParentPath("/7/" + path)));
    CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, "/7/" + path, bytes));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const auto reader, OpenOrbax(storage, "/7"));
  for (std::size_t e = 0; e < reader->catalog().entries.size(); ++e) {
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const std::string bytes, ReadBack(storage, *reader, static_cast<std::int32_t>(e)));
  }
  return OkStatus();
}

void Swap(Files& files, const std::string& path, const std::string& from, const std::string& to) {
  std::string& text = files.at(path);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

struct DamageCase {
  const char* name;
  const char* golden;
  std::function<void(Files&)> damage;
  ErrorCode code;
  const char* says;
};
void PrintTo(const DamageCase& c, std::ostream* out) { *out << c.name; }
class OrbaxDamage : public ::testing::TestWithParam<DamageCase> {};

TEST_P(OrbaxDamage, IsRefusedByName) {
  Files files = Golden(GetParam().golden);
  ASSERT_THAT(ReadEverything(files), IsOk());
  GetParam().damage(files);
  EXPECT_THAT(ReadEverything(files), IsError(GetParam().code, HasSubstr(GetParam().says)));
}

/// Removes everything below a prefix.
std::function<void(Files&)> Without(const std::string& prefix) {
  return [prefix](Files& files) { std::erase_if(files, [&](const auto& file) { return file.first.starts_with(prefix); }); };
}

constexpr auto kCorrupt = ErrorCode::kCorrupt;
constexpr auto kIncomplete = ErrorCode::kIncomplete;
INSTANTIATE_TEST_SUITE_P(
    All, OrbaxDamage,
    ::testing::Values(
        DamageCase{"no_tree", "v0_zarr3/7", Without("items/_METADATA"), kIncomplete, "no tree"},
        DamageCase{"no_manifest", "v0_zarr3/7", Without("items/manifest.ocdbt"), kIncomplete, "not finished"},
        DamageCase{"no_data", "v0_zarr3/7", Without("items/d/"), kIncomplete, "items/d/"},
        DamageCase{"no_process_data", "v0_zarr3/7", Without("items/ocdbt.process_0/d/"), kIncomplete, "a data file of a checkpoint is missing"},
        DamageCase{"no_strings", "v0_zarr3/7", Without("items/_strings.json"), kIncomplete, "the text of a string leaf"},
        DamageCase{"no_array", "directories_zarr3/7", Without("items/step/"), kIncomplete, "none for `step`"},
        DamageCase{"no_chunk", "directories_zarr3/7", Without("items/zeros/c/1/1"), kIncomplete, "chunk `c/1/1`"},
        DamageCase{"no_chunk_of_v2", "directories_zarr2/7", Without("items/zeros/0.0"), kIncomplete, "chunk `0.0`"},
        DamageCase{"empty_chunk", "directories_zarr3/7", [](Files& f) { f.at("items/zeros/c/0/0").clear(); }, kCorrupt, "not as large"},
        DamageCase{"cut_chunk", "directories_zarr3/7", [](Files& f) { f.at("items/zeros/c/0/0").pop_back(); }, kCorrupt, "CRC-32C"},
        DamageCase{"cut_chunk_of_v2", "directories_zarr2/7", [](Files& f) { f.at("items/opt_state.0.mu/0.0").pop_back(); }, kCorrupt, "ends too early"},
        DamageCase{"swapped_chunk", "directories_zarr2/7", [](Files& f) { f.at("items/zeros/0.0") = f.at("items/step/0"); }, kCorrupt, "too few bytes"},
        DamageCase{"cut_manifest", "v0_zarr3/7", [](Files& f) { f.at("items/manifest.ocdbt").pop_back(); }, kCorrupt, "manifest.ocdbt"},
        DamageCase{"larger_shape", "directories_zarr3/7", [](Files& f) { Swap(f, "items/zeros/zarr.json", "\"shape\":[16,16]", "\"shape\":[16,32]"); }, kIncomplete, "`c/0/2`"},
        DamageCase{"huge_chunk", "directories_zarr2/7",
                   [](Files& f) {
                     Swap(f, "items/zeros/.zarray", "\"chunks\":[16,16]", "\"chunks\":[16,16000000000000]");
                     Swap(f, "items/zeros/.zarray", "\"shape\":[16,16]", "\"shape\":[16,16000000000000]");
                   },
                   kCorrupt, "what may decode to"},
        DamageCase{"tree_of_nothing", "v0_zarr3/7", [](Files& f) { f.at("items/_METADATA") = "{}"; }, kCorrupt, "tree_metadata"},
        DamageCase{"another_leaf", "v0_zarr3/7", [](Files& f) { Swap(f, "items/_METADATA", "\"key\": \"zeros\"", "\"key\": \"ones\""); }, kIncomplete, "none for `ones`"},
        DamageCase{"a_path_out", "directories_zarr3/7", [](Files& f) { Swap(f, "items/_METADATA", "\"key\": \"zeros\"", "\"key\": \"../zeros\""); }, ErrorCode::kUnsafe, "`..` part"},
        DamageCase{"named_twice", "v0_zarr3/7", [](Files& f) { Swap(f, "items/_METADATA", "\"key\": \"zeros\"", "\"key\": \"step\""); }, ErrorCode::kUnsupported, "one name in the store"},
        DamageCase{"aggregate", "directories_zarr3/7",
                   [](Files& f) {
                     Without("items/step/")(f);
                     f["items/checkpoint"] = "msgpack";
                   },
                   ErrorCode::kUnsupported, "msgpack"}),
    [](const auto& row) { return row.param.name; });

TEST(OrbaxDamage, ChunksThatWereZeroAreMadeUpOnlyForOldFiles) {
  Files files = Golden("directories_zarr3/7");
  Without("items/zeros/c/1/1")(files);
  Swap(files, "items/_METADATA", "\"store_array_data_equal_to_fill_value\": true", "\"store_array_data_equal_to_fill_value\": false");
  EXPECT_THAT(ReadEverything(files), IsOk());
}

/// No flip of a byte crashes, and none in the tree of the database is silent.
TEST(OrbaxDamage, FlippedBytesAreErrorsOrOtherElements) {
  const Files good = Golden("v0_zarr3/7");
  for (const auto& [path, bytes] : good) {
    if (!path.starts_with("items/") || path.starts_with("items/ocdbt.process_0/")) continue;
    const bool checked = path.starts_with("items/d/") || path == "items/manifest.ocdbt";
    for (std::size_t i = 0; i < bytes.size(); i += 11) {
      Files files = good;
      files[path][i] ^= 0x10;
      const Status read = ReadEverything(files);
      if (!checked) continue;
      EXPECT_THAT(read, IsError(kCorrupt, HasSubstr(""))) << path << " " << i;
    }
  }
}

}  // namespace
}  // namespace crossdock::formats::orbax
