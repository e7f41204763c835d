// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/reader.h"

#include <map>

#include "result_matchers.h"
#include "unit/formats/golden_value.h"

namespace crossdock::formats::pickle {
namespace {

using ::testing::HasSubstr;

Result<std::string> NoTensors(const TensorValue&) { return MakeError(ErrorCode::kUnsupported, "no tensors here"); }

class GoldenPickle : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenPickle, ReadsWhatPythonWrote) {
  const Value expected = ReadExpected("pickle");
  ASSERT_OK_AND_ASSIGN(const Value value, ReadPickle(ReadGolden("pickle/" + GetParam())));
  const Value* want = expected.Find(GetParam());
  ASSERT_NE(want, nullptr);
  if (const Value* same = want->Find("same_as")) want = expected.Find(*same->as_string());
  EXPECT_EQ(Difference(value, *want, NoTensors), "");
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenPickle,
                         ::testing::Values("plain.0.pkl", "plain.1.pkl", "plain.2.pkl", "plain.3.pkl", "plain.4.pkl",
                                           "plain.5.pkl", "newer.2.pkl", "newer.4.pkl", "newer.5.pkl", "built.pkl"));

struct Refusal {
  std::string file;
  ErrorCode code;
  std::string text;
};

class RefusedPickle : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedPickle, IsRefusedByName) {
  EXPECT_THAT(ReadPickle(ReadGolden("pickle/" + GetParam().file)), IsError(GetParam().code, HasSubstr(GetParam().text)));
}

std::vector<Refusal> Refusals() {
  std::vector<Refusal> all = {
      {"broken_bad_memo.pkl", ErrorCode::kCorrupt, "memo entry 5"},
      {"broken_bad_opcode.pkl", ErrorCode::kCorrupt, "unknown opcode"},
      {"broken_cut.pkl", ErrorCode::kCorrupt, "ends before it is complete"},
      {"broken_deep.pkl", ErrorCode::kUnsafe, "levels"},
      {"broken_empty.pkl", ErrorCode::kCorrupt, "ends before it is complete"},
      {"broken_huge_long.pkl", ErrorCode::kCorrupt, "ends before it is complete"},
      {"broken_huge_string.pkl", ErrorCode::kCorrupt, "ends before it is complete"},
      {"broken_inst.pkl", ErrorCode::kUnsafe, "os.system"},
      {"broken_mark_missing.pkl", ErrorCode::kCorrupt, "mark"},
      {"broken_no_stop.pkl", ErrorCode::kCorrupt, "ends before it is complete"},
      {"broken_protocol9.pkl", ErrorCode::kUnsupported, "newer protocol"},
      {"broken_stack_underflow.pkl", ErrorCode::kCorrupt, "more from its stack"},
      {"broken_text_persid.pkl", ErrorCode::kUnsupported, "`P` (0x50)"},
      {"recursive.pkl", ErrorCode::kUnsupported, "contains itself"},
  };
  const std::map<std::string, std::string> named = {
      {"os_system", "posix.system"}, {"nested", "posix.system"}, {"eval", ".eval"}, {"exec", ".exec"}, {"getattr", ".getattr"}};
  for (const auto& [name, text] : named) {
    for (const char* protocol : {".0", ".2", ".4"}) all.push_back({"unsafe_" + name + protocol + ".pkl", ErrorCode::kUnsafe, text});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Files, RefusedPickle, ::testing::ValuesIn(Refusals()),
                         [](const auto& row) {
                           std::string name = row.param.file.substr(0, row.param.file.size() - 4);
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// Every broken_* and unsafe_* file of the folder has a row above: a new one cannot be forgotten.
TEST(RefusedPickles, AreAllListed) {
  const Value expected = ReadExpected("pickle");
  std::size_t listed = 0;
  for (const auto& [name, what] : expected.as_dict()->items) {
    listed += what.Find("broken") != nullptr || what.Find("unsafe") != nullptr || what.Find("recursive") != nullptr ? 1U : 0U;
  }
  EXPECT_EQ(listed, Refusals().size());
}

TEST(ReadPickle, LeavesTheSourceAfterItsStop) {
  ByteSource source(std::string_view("K\x01.K\x02.", 6));
  ASSERT_OK_AND_ASSIGN(const Value first, ReadPickle(source));
  ASSERT_OK_AND_ASSIGN(const Value second, ReadPickle(source));
  EXPECT_EQ(*first.as_int(), 1);
  EXPECT_EQ(*second.as_int(), 2);
  EXPECT_EQ(source.remaining(), 0);
}

TEST(ReadPickle, KeepsTheLastOfEqualKeysAtTheFirstsPlace) {
  ASSERT_OK_AND_ASSIGN(const Value value, ReadPickle("}(X\x01" + std::string(3, '\0') + "aK\x01X\x01" + std::string(3, '\0') +
                                                     "bK\x02X\x01" + std::string(3, '\0') + "aK\x03u."));
  EXPECT_EQ(ToJson(value, 0), R"({"a": 3, "b": 2})");
}

TEST(ReadPickle, RefusesToUnfoldSharedReferencesWithoutBound) {
  std::string bomb = "](K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01" "eq";  // level 0: ten numbers
  bomb.push_back('\0');
  for (char level = 0; level < 30; ++level) {
    bomb += "](";
    for (int i = 0; i < 10; ++i) bomb += {'h', level};
    bomb += {'e', 'q', static_cast<char>(level + 1)};
  }
  EXPECT_THAT(ReadPickle(bomb + "."), IsError(ErrorCode::kUnsafe, HasSubstr("unfolds")));
}

TEST(ReadPickle, SurvivesTruncationAtEveryByte) {
  const std::string whole = ReadGolden("pickle/plain.0.pkl");
  for (std::size_t size = 0; size < whole.size(); size += size < 2000 ? 1 : 37) {
    EXPECT_FALSE(ReadPickle(std::string_view(whole).substr(0, size)).has_value()) << size;
  }
}

}  // namespace
}  // namespace crossdock::formats::pickle
