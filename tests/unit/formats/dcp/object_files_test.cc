// SPDX-License-Identifier: Apache-2.0
#include "formats/dcp/object_files.h"

#include <map>

#include "base/sha256.h"
#include "formats/torch_zip/torch_file.h"
#include "io/memory_storage.h"
#include "result_matchers.h"

namespace crossdock::formats::dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<io::MemoryStorage> With(const std::map<std::string, std::string>& files) {
  auto storage = std::make_unique<io::MemoryStorage>();
  EXPECT_THAT(io::MakeDirs(*storage, "/i"), IsOk());
  for (const auto& [name, content] : files) EXPECT_THAT(io::WriteSmallFile(*storage, "/i/" + name, content), IsOk());
  return storage;
}

std::string Integrity(const std::string& files, const std::string& algorithm = "sha256") {
  return R"({"algorithm": ")" + algorithm + R"(", "files": {)" + files + "}}";
}
std::string Line(const std::string& name, const std::string& content) { return "\"" + name + "\": \"" + Sha256Hex(content) + "\""; }

TEST(ObjectFiles, ComparesTheChecksumsOfIntegrity) {
  const auto storage = With({{"a.json", "alpha"}, {"__0_0.distcp", "data"}, {"integrity.json", Integrity(Line("a.json", "alpha") + ", " + Line("__0_0.distcp", "unread"))}});
  Catalog catalog;
  ASSERT_THAT(LoadObjectFiles(*storage, "/i", catalog), IsOk());
  EXPECT_THAT(catalog.notices, ElementsAre(HasSubstr("1 of 2 checksums")));
}

TEST(ObjectFiles, TakesUpperCaseChecksums) {
  std::string line = Line("a.json", "alpha");
  for (char& c : line) c = c >= 'a' && c <= 'f' && &c > &line[10] ? static_cast<char>(c - 'a' + 'A') : c;
  const auto storage = With({{"a.json", "alpha"}, {"integrity.json", Integrity(line)}});
  Catalog catalog;
  EXPECT_THAT(LoadObjectFiles(*storage, "/i", catalog), IsOk());
}

struct BrokenCase {
  const char* name;
  std::string integrity;
  ErrorCode code;
  const char* says;
};
void PrintTo(const BrokenCase& c, std::ostream* out) { *out << c.name; }
class BrokenIntegrity : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(BrokenIntegrity, IsRefusedByName) {
  const auto storage = With({{"a.json", "changed"}, {"integrity.json", GetParam().integrity}});
  Catalog catalog;
  EXPECT_THAT(LoadObjectFiles(*storage, "/i", catalog), IsError(GetParam().code, HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenIntegrity,
    ::testing::Values(BrokenCase{"changed", Integrity(Line("a.json", "alpha")), ErrorCode::kCorrupt, "/i/a.json"},
                      BrokenCase{"missing", Integrity(Line("b.json", "x")), ErrorCode::kIncomplete, "/i/b.json"},
                      BrokenCase{"upwards", Integrity(Line("../a.json", "x")), ErrorCode::kUnsafe, "../a.json"},
                      BrokenCase{"absolute", Integrity(Line("/etc/passwd", "x")), ErrorCode::kUnsafe, "/etc/passwd"},
                      BrokenCase{"below", Integrity(Line("hf/config.json", "x")), ErrorCode::kUnsafe, "hf/config.json"},
                      BrokenCase{"short", Integrity(R"("a.json": "abcd")"), ErrorCode::kCorrupt, "64 hex digits"},
                      BrokenCase{"number", Integrity(R"("a.json": 5)"), ErrorCode::kCorrupt, "64 hex digits"},
                      BrokenCase{"no_files", R"({"algorithm": "sha256"})", ErrorCode::kCorrupt, "no files"},
                      BrokenCase{"no_json", "{", ErrorCode::kCorrupt, "integrity.json"}),
    [](const auto& row) { return row.param.name; });

TEST(ObjectFiles, TellsOfAnAlgorithmItDoesNotKnow) {
  const auto storage = With({{"a.json", "alpha"}, {"integrity.json", Integrity(R"("a.json": "00")", "blake3")}});
  Catalog catalog;
  ASSERT_THAT(LoadObjectFiles(*storage, "/i", catalog), IsOk());
  EXPECT_THAT(catalog.notices, ElementsAre(HasSubstr("`blake3` is not known")));
}

TEST(ObjectFiles, LoadsTheCountersOfMegatronBridge) {
  TensorValue step;
  step.dtype = DType::kI64;
  step.storage = "0";
  step.storage_numel = 1;
  step.bytes = std::make_shared<const std::string>(std::string("\x2a\0\0\0\0\0\0\0", 8));
  Value state = Value::MakeDict();
  state.Set("step", Value(step));
  auto file = torch_zip::WriteTorchFile(state, "train_state");
  ASSERT_THAT(file, IsOk());
  const auto storage = With({{"train_state.pt", *file}});
  Catalog catalog;
  ASSERT_THAT(LoadObjectFiles(*storage, "/i", catalog), IsOk());
  const TensorValue* found = catalog.objects.at("train_state.pt").Find("step")->as_tensor();
  ASSERT_NE(found, nullptr);
  ASSERT_NE(found->bytes, nullptr);
  EXPECT_EQ(*found->bytes, *step.bytes);
  const auto broken = With({{"train_state.pt", *torch_zip::WriteTorchFile(Value(1), "train_state")}});
  EXPECT_THAT(LoadObjectFiles(*broken, "/i", catalog), IsError(ErrorCode::kCorrupt, HasSubstr("train_state.pt")));
}

TEST(ObjectFiles, KnowTheStepOfADirectory) {
  EXPECT_EQ(StepOfIteration("/run/iter_0000020"), 20);
  EXPECT_EQ(StepOfIteration("/run/release"), 0);
  for (const char* other : {"/run/iter_", "/run/iter_2x", "/run/step_20", "/run/iter_12345678901234567890"}) EXPECT_EQ(StepOfIteration(other), std::nullopt);
}

}  // namespace
}  // namespace crossdock::formats::dcp
