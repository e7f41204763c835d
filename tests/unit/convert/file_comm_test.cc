// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stop_token>
#include <thread>

#include "convert/agree.h"
#include "crossdock/comm.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileCommTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "crossdock-comm-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] std::unique_ptr<Comm> Rank(int rank, int size, double seconds = 60) const { return *MakeFileComm({dir_ + "/meet", rank, size, seconds}); }

  /// Runs `body` as each of the ranks, in threads.
  void AsRanks(int size, const std::function<void(Comm&)>& body, double seconds = 60) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<Comm> comm = Rank(rank, size, seconds);
        body(*comm);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  [[nodiscard]] bool GivenUp() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/meet")) {
      if (entry.path().extension() == ".broken" && !entry.path().filename().string().starts_with(".")) return true;
    }
    return false;
  }

  std::string dir_;
};

TEST_F(FileCommTest, GathersEverybodysBytesAgainAndAgain) {
  for (const int size : {1, 2, 5}) {
    AsRanks(size, [size](Comm& comm) {
      for (int call = 0; call < 4; ++call) {
        ASSERT_OK_AND_ASSIGN(const auto all, comm.AllGather(std::string(static_cast<std::size_t>(call), '\0') + std::to_string(comm.rank())));
        ASSERT_EQ(static_cast<int>(all.size()), size);
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_EQ(all[static_cast<std::size_t>(rank)], std::string(static_cast<std::size_t>(call), '\0') + std::to_string(rank));
        }
        EXPECT_THAT(comm.AllGather(""), IsOk());
      }
    });
  }
}

/// Files of a run that was killed are no messages, whoever comes first.
TEST_F(FileCommTest, ForgetsWhatAnEarlierRunLeft) {
  AsRanks(3, [](Comm& comm) { ASSERT_THAT(comm.AllGather("old"), IsOk()); });
  std::ofstream(dir_ + "/meet/hello.2") << "0123456789abcdef";
  AsRanks(3, [](Comm& comm) {
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ASSERT_OK_AND_ASSIGN(const auto all, comm.AllGather("new"));
    EXPECT_EQ(all, std::vector<std::string>(3, "new"));
  });
}

TEST_F(FileCommTest, NamesRanksThatDoNotComeAndMeetsAnew) {
  AsRanks(3, [this](Comm& comm) {
    ASSERT_THAT(comm.AllGather(""), IsOk());
    if (comm.rank() == 1) {
      while (!GivenUp()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_THAT(comm.AllGather(""), IsError(ErrorCode::kIo, HasSubstr("gave up waiting")));
    } else {
      EXPECT_THAT(comm.AllGather(""), IsError(ErrorCode::kIo, AnyOf(HasSubstr("ranks 1 did not come"), HasSubstr("in vain for ranks 1"))));
    }
    ASSERT_OK_AND_ASSIGN(const auto all, comm.AllGather("again"));
    EXPECT_EQ(all, std::vector<std::string>(3, "again"));
  }, 5.0);
}

/// A rank that comes after the others gave up twice is still told that they did, and does not take their meeting for its own.
TEST_F(FileCommTest, ALateRankIsToldAfterASecondFailureToo) {
  AsRanks(2, [this](Comm& comm) {
    ASSERT_THAT(comm.AllGather(""), IsOk());
    if (comm.rank() == 0) {
      EXPECT_THAT(comm.AllGather(""), IsError(ErrorCode::kIo, HasSubstr("ranks 1 did not come")));
      EXPECT_THAT(comm.AllGather(""), IsError(ErrorCode::kIo, HasSubstr("not all ranks met")));
      std::ofstream(dir_ + "/twice") << "x";
    } else {
      while (!std::filesystem::exists(dir_ + "/twice")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other one begins a third meeting
      EXPECT_THAT(comm.AllGather(""), IsError(ErrorCode::kIo, HasSubstr("gave up waiting")));
    }
    EXPECT_THAT(comm.AllGather("again"), IsOk());
  }, 3.0);
}

/// Ctrl-C is not to wait as long as a rank that is dead. Who comes later is told.
TEST_F(FileCommTest, ARankThatIsToStopWaitsNoLonger) {
  AsRanks(2, [this](Comm& comm) {
    ASSERT_THAT(comm.AllGather(""), IsOk());
    if (comm.rank() == 0) {
      std::stop_source stop;
      comm.Heed(stop.get_token());
      std::jthread soon([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        stop.request_stop();
      });
      EXPECT_THAT(comm.AllGather(""), IsError(ErrorCode::kCancelled, HasSubstr("interrupted")));
      comm.Heed({});
    } else {
      while (!GivenUp()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_THAT(comm.AllGather(""), IsError(ErrorCode::kIo, HasSubstr("rank 0 was interrupted")));
    }
    EXPECT_THAT(comm.AllGather("again"), IsOk());
  }, 300.0);
  const std::unique_ptr<Comm> alone = Rank(0, 2, 300.0);  // nobody else meets it
  std::stop_source stop;
  stop.request_stop();
  alone->Heed(stop.get_token());
  EXPECT_THAT(alone->AllGather(""), IsError(ErrorCode::kCancelled, HasSubstr("interrupted")));
}

TEST_F(FileCommTest, RefusesRanksThatAreNone) {
  for (const auto& [rank, size, seconds] : {std::tuple{2, 2, 1.0}, {-1, 2, 1.0}, {0, 0, 1.0}, {0, 1, 0.0}, {0, 1, std::nan("")}}) {
    EXPECT_THAT(MakeFileComm({dir_, rank, size, seconds}), IsError(ErrorCode::kUsage, HasSubstr("rank")));
  }
}

TEST_F(FileCommTest, WaitsAsLongAsItIsTold) {
  for (const double seconds : {1e12, std::numeric_limits<double>::infinity()}) {
    AsRanks(2, [](Comm& comm) {
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_THAT(comm.AllGather("x"), IsOk());
    }, seconds);
  }
}

TEST_F(FileCommTest, RanksAtDifferentStepsAreTold) {
  AsRanks(2, [](Comm& comm) {
    EXPECT_THAT(AgreeOn(comm, comm.rank() == 0 ? "planning" : "writing", OkStatus()),
                IsError(ErrorCode::kUsage, AllOf(HasSubstr("ranks 0 and 1 are at different steps"), HasSubstr("planning"), HasSubstr("writing"))));
    ASSERT_OK_AND_ASSIGN(const auto all, Agree(comm, "writing", std::string("a\nb")));
    EXPECT_EQ(all, std::vector<std::string>(2, "a\nb"));
  });
}

TEST_F(FileCommTest, AllRanksGetTheErrorOfTheLowestThatFailed) {
  AsRanks(4, [](Comm& comm) {
    const Error mine = MakeError(ErrorCode::kNoSpace, "full").WithPath("/p").WithTensor("t").WithExpected("e").WithFound("f").WithHint("h").WithContext("inside");
    const Status status = comm.rank() >= 2 ? Status(mine) : OkStatus();
    EXPECT_THAT(AgreeOn(comm, "writing", status), IsError(ErrorCode::kNoSpace, AllOf(HasSubstr("full"), HasSubstr("writing on rank 2"), HasSubstr("inside"), HasSubstr("/p"))));
    EXPECT_THAT(AgreeOn(comm, "writing", OkStatus()), IsOk());
    EXPECT_THAT(AgreeOnSame(comm, "planning", "the plan", std::string(comm.rank() == 3 ? "b" : "a")),
                IsError(ErrorCode::kUsage, HasSubstr("ranks 0 and 3 do not agree on the plan")));
    EXPECT_THAT(AgreeOnSame(comm, "planning", "the plan", std::string("a")), IsOk());
  });
}

}  // namespace
}  // namespace crossdock::convert
