// SPDX-License-Identifier: Apache-2.0
#include "io/staging.h"

#include <gtest/gtest.h>

#include "io/memory_storage.h"
#include "io/observed_storage.h"
#include "result_matchers.h"

namespace crossdock::io {
namespace {

using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

const Files kNew = {{"a", "new a"}, {"sub/b", "new b"}};
constexpr const char* kTarget = "/runs/deep/out";

/// The whole of a run that writes kNew and a marker.
Status WriteNew(Storage& storage, const StagingOptions& options) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto staging, Staging::Begin(storage, kTarget, options));
  if (staging->completed()) return OkStatus();
  if (staging->resuming()) CROSSDOCK_RETURN_IF_ERROR(staging->KeepOnly({}));
  if (!staging->resuming()) CROSSDOCK_RETURN_IF_ERROR(WriteSmallFile(storage, staging->journal_path(), "journal"));
  CROSSDOCK_RETURN_IF_ERROR(storage.MakeDir(JoinPath(staging->dir(), "sub")));
  for (const auto& [path, content] : kNew) {
    CROSSDOCK_RETURN_IF_ERROR(WriteSmallFile(storage, JoinPath(staging->dir(), path), content));
  }
  return staging->Commit({{"/runs/latest", "20"}});
}

/// A storage without RENAME_EXCHANGE.
class NoExchange final : private CallObserver, public ObservedStorage {
 public:
  explicit NoExchange(Storage& inner) : ObservedStorage(inner, *this) {}

 private:
  Verdict OnCall(const CallInfo& info) override {
    if (info.call != Call::kExchange) return {};
    return {MakeError(ErrorCode::kUnsupported, "cannot exchange"), 0};
  }
};

class StagingTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_THAT(MakeDirs(memory_, "/runs"), IsOk()); }
  void WriteOld() {
    ASSERT_THAT(MakeDirs(memory_, kTarget), IsOk());
    ASSERT_THAT(WriteSmallFile(memory_, JoinPath(kTarget, "old"), "old"), IsOk());
    ASSERT_THAT(WriteSmallFile(memory_, "/runs/latest", "10"), IsOk());
  }
  MemoryStorage memory_;
};

TEST_F(StagingTest, NothingIsAtTheTargetBeforeCommit) {
  ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {}));
  EXPECT_EQ(staging->dir(), "/runs/deep/.out.crossdock-partial");
  EXPECT_FALSE(Exists(memory_, kTarget));
  ASSERT_THAT(WriteSmallFile(memory_, staging->dir() + "/a", "x"), IsOk());
  ASSERT_THAT(staging->Commit({}), IsOk());
  EXPECT_EQ(memory_.Files("/runs"), (Files{{"deep/out/a", "x"}})) << "and nothing else is left";
}

TEST_F(StagingTest, RefusesAnExistingTarget) {
  WriteOld();
  const Files before = memory_.Files("/");
  EXPECT_THAT(Staging::Begin(memory_, kTarget, {}), IsError(ErrorCode::kUsage, HasSubstr("--force")));
  EXPECT_EQ(memory_.Files("/"), before);
}

TEST_F(StagingTest, ReplacesWithAndWithoutExchange) {
  for (const bool exchange : {true, false}) {
    MemoryStorage memory;
    ASSERT_THAT(MakeDirs(memory, kTarget), IsOk());
    ASSERT_THAT(WriteSmallFile(memory, JoinPath(kTarget, "old"), "old"), IsOk());
    NoExchange limited(memory);
    Storage& storage = exchange ? static_cast<Storage&>(memory) : limited;
    ASSERT_THAT(WriteNew(storage, {.replace = true}), IsOk());
    EXPECT_EQ(memory.Files(kTarget), kNew);
    EXPECT_EQ(memory.Files("/runs/deep"), (Files{{"out/a", "new a"}, {"out/sub/b", "new b"}}));
    EXPECT_EQ(memory.Files("/runs").at("latest"), "20");
  }
}

TEST_F(StagingTest, TwoRunsIntoOneTargetDoNotMix) {
  ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {}));
  EXPECT_THAT(Staging::Begin(memory_, kTarget, {}), IsError(ErrorCode::kIo, HasSubstr("another process")));
  EXPECT_TRUE(Exists(memory_, staging->dir()));
}

TEST_F(StagingTest, DiscardLeavesNoTrace) {
  const Files before = memory_.Files("/");
  ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {}));
  ASSERT_THAT(WriteSmallFile(memory_, staging->dir() + "/a", "x"), IsOk());
  ASSERT_THAT(staging->Discard(), IsOk());
  EXPECT_EQ(memory_.Files("/"), before);
  EXPECT_FALSE(Exists(memory_, "/runs/deep"));
}

TEST_F(StagingTest, ALeftOverIsTakenOverOnlyOnRequestAndWithAJournal) {
  const auto leave = [&](const char* file) {
    auto staging = Staging::Begin(memory_, kTarget, {});
    ASSERT_THAT(staging, IsOk());
    ASSERT_THAT(WriteSmallFile(memory_, JoinPath((*staging)->dir(), file), "x"), IsOk());
  };
  leave(".crossdock-journal");
  {
    ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {.resume = true}));
    EXPECT_TRUE(staging->resuming());
  }
  leave("other");
  {
    ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {.resume = true}));
    EXPECT_FALSE(staging->resuming());
    EXPECT_FALSE(Exists(memory_, staging->dir() + "/other"));
  }
}

TEST_F(StagingTest, ATargetThatIsThereIsLeftAloneByAResume) {
  WriteOld();
  const Files before = memory_.Files("/");
  {
    ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {.resume = true}));
    EXPECT_EQ(staging->earlier(), Earlier::kWasThere);
    EXPECT_TRUE(staging->completed());
    ASSERT_THAT(staging->Discard(), IsOk());
  }
  EXPECT_EQ(memory_.Files("/"), before);
  // With unfinished work beside it nobody knows which of the two is meant.
  ASSERT_THAT(MakeDirs(memory_, "/runs/deep/.out.crossdock-partial"), IsOk());
  EXPECT_THAT(Staging::Begin(memory_, kTarget, {.resume = true}), IsError(ErrorCode::kUsage, HasSubstr("exists already")));
}

TEST_F(StagingTest, SaysWhenUnfinishedWorkIsDropped) {
  ASSERT_THAT(MakeDirs(memory_, "/runs/deep/.out.crossdock-partial"), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {}));
  EXPECT_EQ(staging->earlier(), Earlier::kDropped);
  ASSERT_THAT(staging->Discard(), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto fresh, Staging::Begin(memory_, kTarget, {}));
  EXPECT_EQ(fresh->earlier(), Earlier::kNothing);
}

/// A storage whose directories this process may not write.
class ReadOnly final : private CallObserver, public ObservedStorage {
 public:
  explicit ReadOnly(Storage& inner) : ObservedStorage(inner, *this) {}
  Result<Capabilities> Probe(const std::string& dir) override {
    CROSSDOCK_ASSIGN_OR_RETURN(Capabilities can, ObservedStorage::Probe(dir));
    can.writable = false;
    return can;
  }

 private:
  Verdict OnCall(const CallInfo&) override { return {}; }
};

TEST_F(StagingTest, TellsWhatBeginWouldRefuseAndMakesNothing) {
  EXPECT_THAT(CheckTarget(memory_, kTarget, {}), IsOk());
  EXPECT_TRUE(memory_.Files("/").empty());
  EXPECT_FALSE(Exists(memory_, "/runs/deep"));
  ReadOnly read_only(memory_);
  EXPECT_THAT(CheckTarget(read_only, kTarget, {}), IsError(ErrorCode::kIo, HasSubstr("cannot write into the folder, in `/runs`")));
  ASSERT_THAT(WriteSmallFile(memory_, "/runs/file", ""), IsOk());
  EXPECT_THAT(CheckTarget(memory_, "/runs/file/x/out", {}), IsError(ErrorCode::kUsage, HasSubstr("no directory, in `/runs/file`")));
  EXPECT_THAT(CheckTarget(memory_, "/", {}), IsError(ErrorCode::kUsage, HasSubstr("name")));
  WriteOld();
  EXPECT_THAT(CheckTarget(memory_, kTarget, {}), IsError(ErrorCode::kUsage, HasSubstr("exists already")));
  EXPECT_THAT(CheckTarget(memory_, kTarget, {.replace = true}), IsOk());
  EXPECT_THAT(CheckTarget(memory_, kTarget, {.resume = true}), IsOk());
}

TEST_F(StagingTest, KeepOnlyKeepsTheJournalAndWhatIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto staging, Staging::Begin(memory_, kTarget, {}));
  ASSERT_THAT(MakeDirs(memory_, staging->dir() + "/x/y"), IsOk());
  ASSERT_THAT(MakeDirs(memory_, staging->dir() + "/z"), IsOk());
  for (const char* file : {".crossdock-journal", "a", "b", "x/y/c", "x/d", "z/e"}) {
    ASSERT_THAT(WriteSmallFile(memory_, JoinPath(staging->dir(), file), ""), IsOk());
  }
  ASSERT_THAT(staging->KeepOnly({"a", "x/y/c"}), IsOk());
  EXPECT_EQ(memory_.Files(staging->dir()), (Files{{".crossdock-journal", ""}, {"a", ""}, {"x/y/c", ""}}));
  EXPECT_FALSE(Exists(memory_, staging->dir() + "/z"));
}

TEST_F(StagingTest, RefusesTargetsWithoutAName) {
  for (const char* target : {"/", ".", "..", "", "a/.."}) {
    EXPECT_THAT(Staging::Begin(memory_, target, {}), IsError(ErrorCode::kUsage, HasSubstr("name"))) << target;
  }
}

TEST_F(StagingTest, AFileInTheWayOfAParentIsRefused) {
  ASSERT_THAT(WriteSmallFile(memory_, "/runs/file", ""), IsOk());
  EXPECT_THAT(Staging::Begin(memory_, "/runs/file/out", {}), IsError(ErrorCode::kUsage, HasSubstr("no directory")));
}

/// Every prefix of the operations of a run is a crash; after each the target is absent, old or new, never a mixture,
/// and the next command ends at the new state.
class StagingCrash : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(StagingCrash, LeavesOldOrNewAndCanBeFinished) {
  const auto [old, exchange] = GetParam();
  MemoryStorage memory;
  ASSERT_THAT(MakeDirs(memory, "/runs"), IsOk());
  Files before;
  if (old) {
    ASSERT_THAT(MakeDirs(memory, kTarget), IsOk());
    ASSERT_THAT(WriteSmallFile(memory, JoinPath(kTarget, "old"), "old"), IsOk());
    ASSERT_THAT(WriteSmallFile(memory, "/runs/latest", "10"), IsOk());
    before = memory.Files(kTarget);
  }
  memory.StartRecord();
  NoExchange limited(memory);
  ASSERT_THAT(WriteNew(exchange ? static_cast<Storage&>(memory) : limited, {.replace = old}), IsOk());

  bool seen_old = false;
  for (std::size_t i = 0; i <= memory.record_size(); ++i) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const Unsynced unsynced = seed == 0 ? Unsynced::kLost : seed == 1 ? Unsynced::kKept : Unsynced::kSome;
      SCOPED_TRACE("crash before: " + memory.Describe(i) + ", seed " + std::to_string(seed));
      const auto crashed = memory.AfterCrash(i, unsynced, seed);
      const Files at_target = crashed->Files(kTarget);
      const bool absent = !Exists(*crashed, kTarget);
      // Without RENAME_EXCHANGE there is a moment between two renames, which the record bridges.
      if (!(absent && (!old || !exchange))) {
        EXPECT_TRUE(at_target == before || at_target == kNew);
      }
      seen_old = seen_old || at_target != kNew;
      if (crashed->Files("/runs").contains("latest") && crashed->Files("/runs").at("latest") == "20") {
        EXPECT_EQ(at_target, kNew) << "the marker came before the data";
      }
      NoExchange limited_again(*crashed);
      Storage& again = exchange ? static_cast<Storage&>(*crashed) : limited_again;
      ASSERT_THAT(WriteNew(again, {.replace = true, .resume = true}), IsOk());
      EXPECT_EQ(crashed->Files(kTarget), kNew);
      EXPECT_EQ(crashed->Files("/runs"), memory.Files("/runs"));
    }
  }
  EXPECT_TRUE(seen_old);
}

INSTANTIATE_TEST_SUITE_P(All, StagingCrash, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace crossdock::io
