// SPDX-License-Identifier: Apache-2.0
// Files in the directory, all made under another name and renamed:
//   hello.R            a random word of rank R, anew for each session it wants to join
//   session            of rank 0: a word for the session, then the words of all ranks it knows, one a line
//   ack.SESSION.R      rank R has found its own word in the session
//   go.SESSION         of rank 0: all have
//   SESSION.N.R        rank R's bytes of call N
//   SESSION.broken     somebody gave up waiting in this session
// A dead run's words are in no new session, for no living rank acknowledges them. A rank has read all files of call N - 1 when it writes
// its own of call N; so whoever has seen all of call N removes its file of call N - 1.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <stop_token>
#include <thread>
#include <utility>

#include "convert/random_word.h"
#include "crossdock/comm.h"
#include "io/storage.h"

namespace crossdock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kFirstPause = std::chrono::microseconds(100);
constexpr auto kLongestPause = std::chrono::milliseconds(20);
constexpr double kLastWait = 2;                          ///< seconds for the others to hear of it, once this rank is to stop
constexpr double kLongestTimeout = 10 * 365.25 * 86400;  ///< seconds; clocks overflow in 292 years
constexpr std::int64_t kLargestMessage = std::int64_t{1} << 32U;

/// Pauses that grow, until the time is over; it is shorter for who is told to stop.
class Patience {
 public:
  Patience(double seconds, std::stop_token stop) : end_(In(seconds)), stop_(std::move(stop)) {}
  /// False: it is over.
  bool Wait() {
    if (!told_ && stop_.stop_requested()) {
      told_ = true;
      end_ = std::min(end_, In(kLastWait));
    }
    if (Clock::now() >= end_) return false;
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::microseconds>(pause_ * 2, kLongestPause);
    return true;
  }

 private:
  static Clock::time_point In(double seconds) { return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)); }

  Clock::time_point end_;
  const std::stop_token stop_;
  bool told_ = false;
  std::chrono::microseconds pause_ = kFirstPause;
};

class FileComm final : public Comm {
 public:
  explicit FileComm(const FileCommOptions& options) : options_(Bounded(options)), storage_(io::MakeLocalStorage()) {}

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void Heed(std::stop_token stop) override { stop_ = std::move(stop); }

  Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
    Result<std::vector<std::string>> all = Gather(bytes);
    // Whatever it was: the next call meets anew. A meeting that failed has no session to remember.
    if (!all && !session_.empty()) last_ = std::exchange(session_, "");
    return all;
  }

 private:
  static FileCommOptions Bounded(FileCommOptions options) {
    options.timeout_seconds = std::min(options.timeout_seconds, kLongestTimeout);
    return options;
  }

  Result<std::vector<std::string>> Gather(const std::string& bytes) {
    if (session_.empty()) CROSSDOCK_RETURN_IF_ERROR(Join());
    if (There(session_ + ".broken")) return GivenUp();
    const std::int64_t call = ++calls_;
    CROSSDOCK_RETURN_IF_ERROR(Put(Message(call, options_.rank), bytes));
    std::vector<std::string> all(static_cast<std::size_t>(options_.size));
    all[static_cast<std::size_t>(options_.rank)] = bytes;
    Patience patience(options_.timeout_seconds, stop_);
    for (int rank = 0; rank < options_.size; ++rank) {
      if (rank == options_.rank) continue;
      while (!There(Message(call, rank))) {
        if (There(session_ + ".broken")) return GivenUp();
        if (!patience.Wait()) return Missing(call);
      }
      CROSSDOCK_ASSIGN_OR_RETURN(all[static_cast<std::size_t>(rank)], io::ReadSmallFile(*storage_, Path(Message(call, rank)), kLargestMessage));
    }
    if (call > 1) CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(*storage_, Path(Message(call - 1, options_.rank))));
    return all;
  }

  Status Join() {
    calls_ = 0;
    const std::string word = convert::RandomWord();
    if (options_.rank == 0) CROSSDOCK_RETURN_IF_ERROR(ForgetOldSessions());
    CROSSDOCK_RETURN_IF_ERROR(Put(Hello(options_.rank), word));
    Patience patience(options_.timeout_seconds, stop_);
    std::vector<std::string> known(static_cast<std::size_t>(options_.size));
    std::string proposed;
    do {
      if (options_.rank == 0) {
        std::vector<std::string> words;
        for (int rank = 0; rank < options_.size; ++rank) words.push_back(Get(Hello(rank)));
        if (words != known && std::ranges::find(words, std::string()) == words.end()) {
          proposed = convert::RandomWord();
          CROSSDOCK_RETURN_IF_ERROR(Put("session", fmt::format("{}\n{}\n", proposed, fmt::join(words, "\n"))));
          known = words;
        }
        if (proposed.empty() || !Acknowledged(proposed)) continue;
        CROSSDOCK_RETURN_IF_ERROR(Put("go." + proposed, ""));
        session_ = proposed;
        return OkStatus();
      }
      std::istringstream lines(Get("session"));
      std::string session, line;
      lines >> session;
      for (int rank = 0; rank <= options_.rank; ++rank) line.clear(), lines >> line;
      if (line != word) continue;
      if (proposed != session) {
        CROSSDOCK_RETURN_IF_ERROR(Put(fmt::format("ack.{}.{}", session, options_.rank), ""));
        proposed = session;
      }
      if (!There("go." + session)) continue;
      session_ = session;
      return OkStatus();
    } while (patience.Wait());
    std::vector<int> absent;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (Get(Hello(rank)).empty()) absent.push_back(rank);
    }
    if (stop_.stop_requested()) return Interrupted();
    return TimedOut(absent.empty() ? "not all ranks met" : fmt::format("ranks {} did not come", fmt::join(absent, ", ")));
  }

  bool Acknowledged(const std::string& session) {
    for (int rank = 1; rank < options_.size; ++rank) {
      if (!There(fmt::format("ack.{}.{}", session, rank))) return false;
    }
    return true;
  }

  /// Of rank 0, before it proposes anything: every session that is known then is over.
  Status ForgetOldSessions() {
    CROSSDOCK_ASSIGN_OR_RETURN(const auto entries, storage_->List(options_.dir));
    for (const io::DirEntry& entry : entries) {
      const bool ours = entry.name == "session" || entry.name.starts_with("ack.") || entry.name.starts_with("go.") ||
                        (entry.name.size() > 16 && entry.name[16] == '.' && entry.name.find_first_not_of("0123456789abcdef") == 16);
      const bool for_late_ones = !last_.empty() && entry.name == last_ + ".broken";
      if (ours && !for_late_ones) CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(*storage_, Path(entry.name)));
    }
    return OkStatus();
  }

  Error Missing(std::int64_t call) {
    std::vector<int> missing;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (!There(Message(call, rank))) missing.push_back(rank);
    }
    if (stop_.stop_requested()) {
      (void)Put(session_ + ".broken", fmt::format("rank {} was interrupted", options_.rank));
      return Interrupted();
    }
    (void)Put(session_ + ".broken", fmt::format("rank {} waited in vain for ranks {}", options_.rank, fmt::join(missing, ", ")));
    return TimedOut(fmt::format("ranks {} did not come", fmt::join(missing, ", ")));
  }

  Error GivenUp() {
    return MakeError(ErrorCode::kIo, "another rank gave up waiting").WithPath(options_.dir).WithFound(Printable(Get(session_ + ".broken")))
        .WithHint("a rank was killed or is too slow; once all ranks call again they meet anew");
  }

  [[nodiscard]] Error Interrupted() const { return MakeError(ErrorCode::kCancelled, "the waiting for other ranks was interrupted").WithPath(options_.dir); }

  [[nodiscard]] Error TimedOut(std::string found) const {
    return MakeError(ErrorCode::kIo, "ranks were waited for in vain").WithPath(options_.dir)
        .WithExpected(fmt::format("all {} ranks within {} seconds", options_.size, options_.timeout_seconds))
        .WithFound(std::move(found))
        .WithHint("a rank was killed or is too slow; once all ranks call again they meet anew");
  }

  static std::string Hello(int rank) { return fmt::format("hello.{}", rank); }
  [[nodiscard]] std::string Message(std::int64_t call, int rank) const { return fmt::format("{}.{}.{}", session_, call, rank); }
  [[nodiscard]] std::string Path(const std::string& name) const { return io::JoinPath(options_.dir, name); }
  [[nodiscard]] bool There(const std::string& name) { return io::Exists(*storage_, Path(name)); }
  /// Empty when it is not there.
  [[nodiscard]] std::string Get(const std::string& name) {
    Result<std::string> text = io::ReadSmallFile(*storage_, Path(name));
    return text ? *std::move(text) : std::string();
  }

  /// Nothing of it needs to outlive a crash: no sync.
  Status Put(const std::string& name, const std::string& bytes) {
    const std::string temporary = Path(fmt::format(".{}.{}", name, options_.rank));
    CROSSDOCK_RETURN_IF_ERROR(io::RemoveFileIfPresent(*storage_, temporary));
    {
      CROSSDOCK_ASSIGN_OR_RETURN(const auto file, storage_->Create(temporary));
      CROSSDOCK_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(bytes))));
    }
    return storage_->Rename(temporary, Path(name));
  }

  const FileCommOptions options_;
  const std::unique_ptr<io::Storage> storage_;
  std::string session_;     ///< empty: not met yet
  std::string last_;        ///< the session before
  std::int64_t calls_ = 0;  ///< of this session
  std::stop_token stop_;
};

class SoloComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Result<std::vector<std::string>> AllGather(const std::string& bytes) override { return std::vector{bytes}; }
};

}  // namespace

Result<std::unique_ptr<Comm>> MakeFileComm(const FileCommOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size || !(options.timeout_seconds > 0)) {
    return MakeError(ErrorCode::kUsage, "ranks count from 0 and below their number, and wait for some time")
        .WithFound(fmt::format("rank {} of {}, {} seconds", options.rank, options.size, options.timeout_seconds));
  }
  const std::unique_ptr<io::Storage> storage = io::MakeLocalStorage();
  const Status made = io::Exists(*storage, options.dir) ? OkStatus() : io::MakeDirs(*storage, options.dir);
  if (!made && !io::Exists(*storage, options.dir)) return made.error();  // another rank may have made it meanwhile
  return std::unique_ptr<Comm>(std::make_unique<FileComm>(options));
}

std::unique_ptr<Comm> MakeSoloComm() { return std::make_unique<SoloComm>(); }

}  // namespace crossdock
