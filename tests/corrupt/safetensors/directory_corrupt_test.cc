// SPDX-License-Identifier: Apache-2.0
// Directories that lie or are incomplete: each by name, with the code and the words that help.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/endian.h"
#include "formats/safetensors/safetensors.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::safetensors {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string FileOf(const std::string& name) {
  const std::string json = "{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
  std::string out(8, '\0');
  StoreLittle<std::uint64_t>(out.data(), json.size());
  return out + json + "*";
}

constexpr const char* kOne = "model-00001-of-00002.safetensors";
constexpr const char* kTwo = "model-00002-of-00002.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
const std::string kIndex = std::string(R"({"metadata":{"total_size":2},"weight_map":{"a":")") + kOne + R"(","b":")" + kTwo + "\"}}";

using Files = std::map<std::string, std::string>;

Files GoodFiles() { return {{kOne, FileOf("a")}, {kTwo, FileOf("b")}, {kIndexName, kIndex}, {"config.json", "{}"}}; }

Result<std::unique_ptr<CheckpointReader>> OpenFiles(const Files& files, const std::string& path = "/m") {
  io::MemoryStorage storage;
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, "/m"));
  for (const auto& [name, bytes] : files) CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, "/m/" + name, bytes));
  return OpenSafetensors(storage, path);
}

struct DirectoryCase {
  std::string name;
  std::function<void(Files*)> spoil;
  ErrorCode code;
  std::string message;
};
void PrintTo(const DirectoryCase& c, std::ostream* out) { *out << c.name; }

std::string IndexWith(const std::string& map) { return R"({"weight_map":{)" + map + "}}"; }

std::vector<DirectoryCase> Cases() {
  const std::string one = std::string("\"") + kOne + "\"";
  return {
      {"MissingShard", [](Files* f) { f->erase(kTwo); }, ErrorCode::kIncomplete, kTwo},
      // As many files as tensors, all missing: told at once, the first of them by name.
      {"ManyMissingShards", [](Files* f) { std::string map; for (int i = 0; i < 100000; ++i) map += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + "\":\"f" + std::to_string(i) + ".safetensors\""; (*f)[kIndexName] = IndexWith(map); },
       ErrorCode::kIncomplete, "`f19.safetensors`, ..."},
      {"TruncatedShard", [](Files* f) { (*f)[kTwo].pop_back(); }, ErrorCode::kCorrupt, "the index places 1 tensor (`b`) in it"},
      {"EmptyShard", [](Files* f) { (*f)[kTwo].clear(); }, ErrorCode::kCorrupt, "header too small"},
      {"GhostKey", [](Files* f) { (*f)[kTwo] = FileOf("c"); }, ErrorCode::kIncomplete, "lists what no file holds: 1 tensor (`b`)"},
      {"SameTensorInTwoFiles", [](Files* f) { (*f)[kTwo] = FileOf("a"); }, ErrorCode::kCorrupt, "lies in two files"},
      {"IndexNotJson", [](Files* f) { (*f)[kIndexName] = "x"; }, ErrorCode::kCorrupt, "invalid JSON in index"},
      {"IndexEmpty", [](Files* f) { (*f)[kIndexName] = ""; }, ErrorCode::kCorrupt, "invalid JSON in index"},
      {"IndexArray", [](Files* f) { (*f)[kIndexName] = "[]"; }, ErrorCode::kCorrupt, "invalid JSON in index"},
      {"IndexTrailingText", [](Files* f) { (*f)[kIndexName] += "x"; }, ErrorCode::kCorrupt, "invalid JSON in index"},
      {"IndexWithoutMap", [](Files* f) { (*f)[kIndexName] = "{}"; }, ErrorCode::kCorrupt, "no `weight_map`"},
      {"IndexMapIsList", [](Files* f) { (*f)[kIndexName] = R"({"weight_map":[]})"; }, ErrorCode::kCorrupt, "no object"},
      {"IndexFileIsNumber", [](Files* f) { (*f)[kIndexName] = IndexWith(R"("a":1)"); }, ErrorCode::kCorrupt, "names no file"},
      {"IndexEmptyMap", [](Files* f) { (*f)[kIndexName] = IndexWith(""); }, ErrorCode::kIncomplete, "lists no tensor"},
      {"IndexDuplicateKey", [one](Files* f) { (*f)[kIndexName] = IndexWith("\"a\":" + one + ",\"a\":" + one); }, ErrorCode::kCorrupt,
       "duplicate key `a` in /m/model.safetensors.index.json"},
      {"IndexDuplicateMap", [](Files* f) { (*f)[kIndexName] = R"({"weight_map":{},"weight_map":{}})"; }, ErrorCode::kCorrupt, "duplicate key `weight_map`"},
      {"IndexBadUtf8", [](Files* f) { (*f)[kIndexName] = "{\"\xff\":1}"; }, ErrorCode::kCorrupt, "invalid UTF-8 in index"},
      {"PathUpwards", [](Files* f) { (*f)[kIndexName] = IndexWith(R"("a":"../m/x.safetensors")"); }, ErrorCode::kUnsafe, "outside its directory"},
      {"PathAbsolute", [](Files* f) { (*f)[kIndexName] = IndexWith(R"("a":"/etc/passwd")"); }, ErrorCode::kUnsafe, "outside its directory"},
      {"PathEmpty", [](Files* f) { (*f)[kIndexName] = IndexWith(R"("a":"")"); }, ErrorCode::kUnsafe, "outside its directory"},
      {"PathWithNul", [](Files* f) { (*f)[kIndexName] = IndexWith(R"("a":"x\u0000y")"); }, ErrorCode::kUnsafe, "outside its directory"},
      {"NoIndexAndPartOfTheSet", [](Files* f) { f->erase(kIndexName); f->erase(kOne); }, ErrorCode::kIncomplete, kOne},
      {"NoIndexAndTwoCandidates", [](Files* f) { *f = {{"x.safetensors", FileOf("a")}, {"y.safetensors", FileOf("a")}}; }, ErrorCode::kIncomplete, "`x.safetensors`, `y.safetensors`"},
      {"TwoIndexes", [](Files* f) { (*f)["x.safetensors.index.json"] = kIndex; (*f)["y.safetensors.index.json"] = kIndex; f->erase(kIndexName); }, ErrorCode::kIncomplete, "index"},
      {"OnlyPickled", [](Files* f) { *f = {{"pytorch_model.bin", "x"}, {"config.json", "{}"}}; }, ErrorCode::kUnsupported, "pytorch_model.bin"},
      {"NoWeights", [](Files* f) { *f = {{"config.json", "{}"}}; }, ErrorCode::kIncomplete, "no weight files"},
      {"ConfigNotJson", [](Files* f) { (*f)["config.json"] = "{"; }, ErrorCode::kCorrupt, "config.json"},
      {"ConfigDuplicateKey", [](Files* f) { (*f)["config.json"] = R"({"a":1,"a":2})"; }, ErrorCode::kCorrupt, "duplicate key"},
      {"ConfigIsList", [](Files* f) { (*f)["config.json"] = "[]"; }, ErrorCode::kCorrupt, "no JSON object"},
  };
}

class CorruptDirectory : public ::testing::TestWithParam<DirectoryCase> {};

TEST_P(CorruptDirectory, IsRefused) {
  Files files = GoodFiles();
  GetParam().spoil(&files);
  EXPECT_THAT(OpenFiles(files), IsError(GetParam().code, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(All, CorruptDirectory, ::testing::ValuesIn(Cases()), [](const auto& row) { return row.param.name; });

TEST(CorruptDirectory, TheGoodOneOpens) { EXPECT_THAT(OpenFiles(GoodFiles()), IsOk()); }

TEST(CorruptDirectory, MissingShardSaysWhatIsHit) {
  Files files = GoodFiles();
  files.erase(kTwo);
  EXPECT_THAT(OpenFiles(files), IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("1 tensor (`b`)"), HasSubstr("incomplete"))));
}

TEST(CorruptDirectory, DanglingLinkNamesLinkAndTarget) {
  namespace fs = std::filesystem;
  std::string pattern = (fs::path(::testing::TempDir()) / "crossdock-dangling-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path dir = pattern;
  fs::create_symlink("../../blobs/gone", dir / "model.safetensors");
  const auto storage = io::MakeLocalStorage();
  EXPECT_THAT(OpenSafetensors(*storage, dir.string()),
              IsError(ErrorCode::kIncomplete, AllOf(HasSubstr("model.safetensors"), HasSubstr("../../blobs/gone"))));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace crossdock::formats::safetensors
