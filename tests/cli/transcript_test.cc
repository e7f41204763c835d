// SPDX-License-Identifier: Apache-2.0
/// Transcripts of the command line: every file of tests/cli/transcripts is a session in a directory of its own.
/// A line `$ COMMAND` is run by sh, with `crossdock` being the program under test; the lines that follow are its standard
/// output and error together, and `[exit N]` stands last when N is not 0. Times, rates and memory are written as `*`.
/// A line `...` matches any number of lines. `UPDATE_SNAPSHOTS=1` writes what was seen into the files, for review.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Step {
  std::string command;
  std::vector<std::string> expected;
};

struct Session {
  std::vector<std::string> preamble;  ///< comment lines before the first command
  std::vector<Step> steps;
};

Session ReadSession(const fs::path& path) {
  Session session;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with("$ ")) {
      session.steps.push_back({line.substr(2), {}});
    } else if (session.steps.empty()) {
      session.preamble.push_back(line);
    } else {
      session.steps.back().expected.push_back(line);
    }
  }
  return session;
}

/// What differs from run to run, and from machine to machine.
std::string Normalise(std::string line, const std::string& dir) {
  for (std::size_t at = line.find(dir); at != std::string::npos; at = line.find(dir)) line.replace(at, dir.size(), "DIR");
  static const std::array<std::pair<std::regex, const char*>, 6> kVariable = {{
      {std::regex(R"re(in [0-9.]+ s, [0-9.]+ [KMGTi]*(B|bytes)/s; peak memory .*)re"), "in *"},
      {std::regex(R"re([0-9]+ bytes free)re"), "* bytes free"},
      {std::regex(R"re([0-9.]+ [KMGTi]*(B|bytes) expected at the peak, with [0-9]+ threads)re"), "* expected at the peak, with * threads"},
      {std::regex(R"re(in [0-9]+ pieces of at most .*)re"), "in * pieces of at most *"},
      {std::regex(R"re("(seconds|bytes_per_second|peak_memory|peak_anonymous|disk_free|expected_peak_memory|threads|tasks|plan_hash|digest)": [^,]*)re"),
       "\"$1\": *"},
      {std::regex(R"re(roundtrip-[0-9]+)re"), "roundtrip-*"},
  }};
  for (const auto& [pattern, replacement] : kVariable) line = std::regex_replace(line, pattern, replacement);
  return line;
}

std::vector<std::string> RunStep(const std::string& command, const fs::path& dir) {
  const std::string whole = "cd '" + dir.string() + "' && unset $(env | grep -o '^CROSSDOCK_[A-Z_]*') && crossdock() { '" CROSSDOCK_BINARY
                            "' \"$@\"; } && { " + command + "\n} 2>&1";
  std::FILE* pipe = popen(whole.c_str(), "r");
  if (pipe == nullptr) return {"popen failed"};
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
  const int status = pclose(pipe);
  std::vector<std::string> lines;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) lines.push_back(Normalise(line, dir.string()));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) lines.push_back("[exit " + std::to_string(WEXITSTATUS(status)) + "]");
  if (!WIFEXITED(status)) lines.push_back("[killed by signal " + std::to_string(WTERMSIG(status)) + "]");
  return lines;
}

/// Lines against lines, where an expected `...` stands for any number of them.
bool Matches(const std::vector<std::string>& expected, std::size_t i, const std::vector<std::string>& seen, std::size_t j) {
  if (i == expected.size()) return j == seen.size();
  if (expected[i] == "...") {
    for (std::size_t k = j; k <= seen.size(); ++k) {
      if (Matches(expected, i + 1, seen, k)) return true;
    }
    return false;
  }
  return j < seen.size() && expected[i] == seen[j] && Matches(expected, i + 1, seen, j + 1);
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "  " + line + "\n";
  return out;
}

std::vector<std::string> TranscriptNames() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(CROSSDOCK_SOURCE_DIR "/tests/cli/transcripts")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class Transcript : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "crossdock-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
  fs::path dir_;
};

TEST_P(Transcript, IsWhatTheProgramSays) {
  const fs::path path = fs::path(CROSSDOCK_SOURCE_DIR "/tests/cli/transcripts") / (GetParam() + ".txt");
  Session session = ReadSession(path);
  ASSERT_FALSE(session.steps.empty()) << path;
  const bool update = std::getenv("UPDATE_SNAPSHOTS") != nullptr;
  for (Step& step : session.steps) {
    const std::vector<std::string> seen = RunStep(step.command, dir_);
    if (Matches(step.expected, 0, seen, 0)) continue;
    if (update) {
      step.expected = seen;
    } else {
      ADD_FAILURE() << path << "\n$ " << step.command << "\nexpected:\n" << Joined(step.expected) << "seen:\n" << Joined(seen);
    }
  }
  if (!update) return;
  std::ofstream out(path);
  for (const std::string& line : session.preamble) out << line << "\n";
  for (const Step& step : session.steps) {
    out << "$ " << step.command << "\n";
    for (const std::string& line : step.expected) out << line << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Transcript, ::testing::ValuesIn(TranscriptNames()),
                         [](const auto& row) { return row.param; });

}  // namespace
