// SPDX-License-Identifier: Apache-2.0
#include "cli/words.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "result_matchers.h"

namespace crossdock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StrEq;

Result<Words> Settle(const std::vector<std::string>& args, const std::string& existing = "") {
  return SettleWords(args, [existing](const std::string& word) { return !existing.empty() && word == existing; });
}

std::vector<std::string> Options(const std::vector<std::string>& args) {
  const Result<Words> words = Settle(args);
  EXPECT_THAT(words, IsOk());
  return words ? words->options : std::vector<std::string>();
}

struct Spelling {
  std::string_view name;
  std::vector<std::string> args;
  std::vector<std::string> options;
};
void PrintTo(const Spelling& spelling, std::ostream* out) { *out << spelling.name; }
class WordsSpelling : public ::testing::TestWithParam<Spelling> {};

TEST_P(WordsSpelling, BecomesTheMainName) {
  std::vector<std::string> args = {"convert"};
  args.insert(args.end(), GetParam().args.begin(), GetParam().args.end());
  EXPECT_EQ(Options(args), GetParam().options);
}

INSTANTIATE_TEST_SUITE_P(
    Table, WordsSpelling,
    ::testing::Values(
        Spelling{"Joined", {"--tp=2"}, {"--tp=2"}},
        Spelling{"Apart", {"--tp", "2"}, {"--tp=2"}},
        Spelling{"Underscores", {"--max_shard_size=5GB"}, {"--max-shard-size=5GB"}},
        Spelling{"MixedBeforeEquals", {"--target_tensor-model_parallel-size=4"}, {"--tp=4"}},
        Spelling{"MegatronLm", {"--tensor-model-parallel-size", "2", "--pipeline_model_parallel_size", "4"}, {"--tp=2", "--pp=4"}},
        Spelling{"ConvertPy", {"--target-tensor-parallel-size", "2", "--load-dir", "a", "--save-dir", "b"},
                 {"--tp=2", "--source=a", "--target=b"}},
        Spelling{"Verl", {"--local_dir", "a", "--target_dir", "b"}, {"--source=a", "--target=b"}},
        Spelling{"Slime", {"--input-dir", "a", "--output-dir", "b"}, {"--source=a", "--target=b"}},
        Spelling{"Bridge", {"--hf-model", "m", "--megatron-path", "p"}, {"--hf-model=m", "--megatron-path=p"}},
        Spelling{"CkptStep", {"--ckpt-step", "20"}, {"--step=20"}},
        Spelling{"FlagTrue", {"--force=true"}, {"--force=true"}},
        Spelling{"FlagFalse", {"--force=False"}, {"--force=false"}},
        Spelling{"FlagAlone", {"--dry_run"}, {"--dry-run=true"}},
        Spelling{"ShortForce", {"-f"}, {"--force=true"}},
        Spelling{"ValueWithEquals", {"--set", "lr=1e-4"}, {"--set=lr=1e-4"}},
        Spelling{"NegativeValue", {"--threads", "-1"}, {"--threads=-1"}},
        Spelling{"NoLoadOptim", {"--no-load-optim"}, {"--no-optim=true"}},
        Spelling{"Fp8InEverySpelling", {"--strategy", "channel", "--block_size", "64", "32", "--fp8=false"},
                 {"--fp8-strategy=channel", "--fp8-block-size=64,32", "--fp8=false"}},
        Spelling{"MaxTextWords", {"model_name=qwen3", "base_output_directory=out", "save_dtype=bf16"},
                 {"--family=qwen3", "--target=out", "--dtype=bf16"}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Words, KeepsPositionalsInOrder) {
  ASSERT_OK_AND_ASSIGN(const Words words, Settle({"convert", "a", "--to", "hf", "b"}));
  EXPECT_THAT(words.positionals, ElementsAre("a", "b"));
  EXPECT_THAT(words.options, ElementsAre("--to=hf"));
  EXPECT_EQ(words.command->name, "convert");
}

TEST(Words, TakesOptionsBeforeTheCommand) {
  ASSERT_OK_AND_ASSIGN(const Words words, Settle({"--progress", "plain", "inspect", "a"}));
  EXPECT_EQ(words.command->name, "inspect");
  EXPECT_THAT(words.options, ElementsAre("--progress=plain"));
}

TEST(Words, TakesEverythingAfterTwoDashesAsPositional) {
  ASSERT_OK_AND_ASSIGN(const Words words, Settle({"inspect", "--", "--odd", "a=b"}));
  EXPECT_THAT(words.positionals, ElementsAre("--odd", "a=b"));
}

TEST(Words, ReadsFp8ValueOnlyWhenItIsOne) {
  // `--fp8 out`: `out` is the target, and `--fp8` alone names no strategy.
  ASSERT_OK_AND_ASSIGN(const Words alone, Settle({"convert", "in", "--fp8", "out"}));
  EXPECT_THAT(alone.options, ElementsAre("--fp8=true"));
  EXPECT_THAT(alone.positionals, ElementsAre("in", "out"));
  ASSERT_OK_AND_ASSIGN(const Words channel, Settle({"convert", "in", "--fp8", "channel", "out"}));
  EXPECT_THAT(channel.options, ElementsAre("--fp8=channel"));
  EXPECT_THAT(channel.positionals, ElementsAre("in", "out"));
  EXPECT_THAT(Settle({"convert", "--fp8-block-size", "64", "--fp8"}), IsError(ErrorCode::kUsage, StrEq(
      "`--fp8-block-size` needs a value\nhint: `crossdock convert --help` lists the options")));
}

TEST(Words, IgnoresOtherKeyValueWordsWithANotice) {
  ASSERT_OK_AND_ASSIGN(const Words words, Settle({"convert", "per_device_batch_size=4", "src"}));
  EXPECT_THAT(words.notices, ElementsAre("`per_device_batch_size=4` is ignored: it says nothing about a conversion"));
  EXPECT_THAT(words.positionals, ElementsAre("src"));
}

TEST(Words, TakesAnExistingPathWithEqualsAsAPath) {
  ASSERT_OK_AND_ASSIGN(const Words words, Settle({"inspect", "lr=3"}, "lr=3"));
  EXPECT_THAT(words.positionals, ElementsAre("lr=3"));
  EXPECT_THAT(words.notices, IsEmpty());
}

TEST(Words, RefusesWithTheWholeMessage) {
  EXPECT_THAT(Settle({"conver", "a"}), IsError(ErrorCode::kUsage, StrEq(
      "unknown command `conver`\nhint: did you mean `convert`?")));
  EXPECT_THAT(Settle({"translate", "a"}), IsError(ErrorCode::kUsage, StrEq(
      "unknown command `translate`\nhint: `crossdock --help` lists the commands")));
  EXPECT_THAT(Settle({"convert", "--target-tensor-paralel-sise", "4"}), IsError(ErrorCode::kUsage, StrEq(
      "unknown option `--target-tensor-paralel-sise` of `crossdock convert`\nhint: did you mean `--target-tensor-parallel-size`?")));
  EXPECT_THAT(Settle({"convert", "--laod_dir", "4"}), IsError(ErrorCode::kUsage, StrEq(
      "unknown option `--laod_dir` of `crossdock convert`\nhint: did you mean `--load-dir`?")));
  EXPECT_THAT(Settle({"convert", "--thread", "4"}), IsError(ErrorCode::kUsage, StrEq(
      "unknown option `--thread` of `crossdock convert`\nhint: did you mean `--threads`?")));
  EXPECT_THAT(Settle({"convert", "--abracadabra"}), IsError(ErrorCode::kUsage, StrEq(
      "unknown option `--abracadabra` of `crossdock convert`\nhint: `crossdock convert --help` lists the options")));
  EXPECT_THAT(Settle({"inspect", "--tp", "2"}), IsError(ErrorCode::kUsage, StrEq(
      "`--tp` does not apply to `crossdock inspect`\nhint: `crossdock inspect --help` lists the options")));
  EXPECT_THAT(Settle({"convert", "--tp", "--pp", "2"}), IsError(ErrorCode::kUsage, StrEq(
      "`--tp` needs a value\nhint: `crossdock convert --help` lists the options")));
  EXPECT_THAT(Settle({"convert", "--force=maybe"}), IsError(ErrorCode::kUsage, StrEq(
      "`--force` takes true or false; found `maybe`")));
}

TEST(Words, TakesNoEmptyWordForAValue) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"convert", "a", "b", "--to", ""}, {"convert", "a", "b", "--to="}}) {
    EXPECT_THAT(Settle(args), IsError(ErrorCode::kUsage, StrEq("`--to` needs a value; found an empty word\nhint: `crossdock convert --help` lists the options")));
  }
}

TEST(Words, FindsHelpAndVersion) {
  ASSERT_OK_AND_ASSIGN(const Words top, Settle({"--help"}));
  EXPECT_TRUE(top.help && top.command == nullptr);
  ASSERT_OK_AND_ASSIGN(const Words of, Settle({"convert", "a", "--help"}));
  EXPECT_TRUE(of.help);
  EXPECT_EQ(of.command->name, "convert");
  ASSERT_OK_AND_ASSIGN(const Words version, Settle({"--version"}));
  EXPECT_TRUE(version.version);
}

TEST(Words, KnowsThatJsonIsWantedBeforeParsing) {
  EXPECT_TRUE(WantsJson({"convert", "--nonsense", "--json"}));
  EXPECT_TRUE(WantsJson({"--json=true"}));
  EXPECT_FALSE(WantsJson({"inspect", "--", "--json"}));
}

TEST(OptionTable, HasEachSpellingOnce) {
  std::vector<std::string> all;
  for (const OptionSpec& spec : OptionTable()) {
    all.emplace_back(spec.name);
    std::string_view rest = spec.aliases;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      all.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

TEST(OptionTable, IsDocumented) {
  std::ifstream in(CROSSDOCK_SOURCE_DIR "/docs/reference/cli.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(page.empty());
  for (const OptionSpec& spec : OptionTable()) {
    EXPECT_THAT(page, ::testing::HasSubstr("--" + std::string(spec.name))) << spec.name;
  }
}

}  // namespace
}  // namespace crossdock::cli
