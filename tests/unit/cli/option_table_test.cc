// SPDX-License-Identifier: Apache-2.0
/// Every option of the table, by every spelling: either it changes what a command is asked to do, or it is refused by name.
/// An option that does neither is a dead flag; one that the reference does not name is one that nobody can find.
#include "cli/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "cli/convert_options.h"
#include "cli/parser.h"
#include "result_matchers.h"

namespace crossdock::cli {
namespace {

using ::testing::HasSubstr;

Machine Nowhere() {
  Machine machine;
  machine.environment = [](const char*) -> const char* { return nullptr; };
  machine.exists = [](const std::string&) { return false; };
  return machine;
}

std::vector<std::string> Spellings(const OptionSpec& spec) {
  std::vector<std::string> out = {std::string(spec.name)};
  std::istringstream aliases{std::string(spec.aliases)};
  for (std::string alias; aliases >> alias;) out.push_back(alias);
  return out;
}

/// Every field of what a conversion is asked for.
std::string Said(const ConvertOptions& o) {
  const auto number = [](const auto& value) { return value ? std::to_string(*value) : std::string("-"); };
  const LayoutOptions& l = o.layout;
  std::string out = fmt::format("{}|{}|{}|{}|", o.source, o.target, o.to, o.from.value_or("-"));
  out += fmt::format("{} {} {} {} {} {} {} {} {} {} {}|", l.tp, l.pp, l.pipeline_layers, number(l.first_stage_layers), number(l.last_stage_layers), l.vpp,
                     number(l.layers_per_virtual_stage), l.pipeline_layout, l.account_for_embedding, l.account_for_loss, l.given);
  for (const auto& [key, value] : o.set_args) out += key + "=" + value + "|";
  out += fmt::format("{}|{}|{}|{}|{}|{}|", o.hf_template.value_or("-"), o.family.value_or("-"), o.rules.value_or("-"), o.dtype.value_or("-"), o.keep_dtype,
                     o.step ? StepWord(*o.step) : "-");
  out += fmt::format("{}{}{}|{} {} {}|{}{}{}{}|", o.no_optim, o.no_rng, o.require_optim, o.max_shard_bytes, o.memory, o.threads, o.force, o.resume, o.dry_run, o.verify);
  out += fmt::format("{}|{}|{}|{}|{} {}|{}|", o.consumer, number(o.iteration), o.release, o.params_from, number(o.vocab_divisor), number(o.padded_vocab),
                     o.receipt.value_or("-"));
  out += fmt::format("{}|{}|{}|{}|{} {} {} {} {}", o.emit_manifest.value_or("-"), o.manifest_only, o.tokenizer.value_or("-"), o.allow, l.ep, l.etp, l.encoder_tp, o.mtp, o.experts);
  out += fmt::format("|{} {} {} {} {} {} {} {}", number(o.scan_layers), number(o.scan_axis), o.opt_type.value_or("-"), o.zstd_level.value_or(-1), o.muon_momentum, o.no_commit_marker, o.lora_base.value_or("-"), o.tunix_template.value_or("-"));
  const Fp8Request& f = o.fp8;
  out += fmt::format("|{} {} {} {} {} {} {} {} {}", f.strategy.value_or("-"), f.block.value_or(std::pair<std::int64_t, std::int64_t>()), f.scale_format.value_or("-"),
                     f.format.value_or("-"), f.arithmetic.value_or("-"), f.device.value_or("-"), f.skip, f.only, number(f.check_tp));
  return out;
}

Result<ConvertOptions> Asked(std::vector<std::string> args) {
  const Machine machine = Nowhere();
  CROSSDOCK_ASSIGN_OR_RETURN(const Words words, SettleWords(args, machine.exists));
  CROSSDOCK_ASSIGN_OR_RETURN(const Request request, ParseWords(words, machine.environment));
  return BuildConvertOptions(request, machine);
}

/// A value that is not the default, for each option of `convert` that takes one.
const std::map<std::string_view, std::string>& Values() {
  static const std::map<std::string_view, std::string> kValues = {
      {"source", "s"}, {"target", "t"}, {"megatron-path", "p"}, {"hf-path", "h"}, {"hf-model", "m"}, {"to", "dcp"}, {"from", "hf"}, {"saver", "core"},
      {"loader", "core"}, {"model-size", "qwen2.5-7B"}, {"tokenizer-model", "k"}, {"tp", "2"}, {"pp", "2"}, {"ep", "2"}, {"etp", "4"}, {"encoder-tp", "2"}, {"mtp", "drop"}, {"experts", "fused"},
      {"pipeline-layers", "3,1"}, {"first-stage-layers", "1"}, {"last-stage-layers", "1"}, {"vpp", "2"}, {"num-layers-per-virtual-pipeline-stage", "1"},
      {"pipeline-layout", "Et|tL"}, {"make-vocab-size-divisible-by", "64"}, {"padded-vocab-size", "2048"}, {"dtype", "fp16"}, {"keep-dtype", "*norm*"},
      {"step", "7"}, {"params-from", "master"}, {"set", "lr=1"}, {"hf-template", "m"}, {"family", "llama"}, {"rules", "r"}, {"for", "megatron-lm@0.19"},
      {"iteration", "7"}, {"max-shard-size", "1GB"}, {"fp8-max-shard-size-mb", "9"}, {"allow", "inexact"}, {"memory", "1GiB"}, {"threads", "3"},
      {"fp8", "channel"}, {"fp8-strategy", "tensor"}, {"fp8-block-size", "64,32"}, {"scale-fmt", "ue8m0"}, {"fp8-format", "native"}, {"fp8-arith", "relax"},
      {"fp8-device", "cuda"}, {"lora-base", "p"}, {"tunix-template", "p"}, {"fp8-skip", "p"}, {"fp8-only", "p"}, {"check-tp", "4"},
      {"scan-axis", "2"}, {"opt-type", "adam_pax"}, {"compression", "zstd:3"}, {"muon-momentum", "sum"}, {"emit-manifest", "f"}, {"receipt", "f"}};
  return kValues;
}

/// Options of convert that change nothing in what is converted: the talk, tested by tests/cli, and words that are only checked.
constexpr std::string_view kTalk = "progress quiet verbose json";
constexpr std::string_view kChecked = "model-type checkpoint-type";

TEST(OptionTable, EverySpellingOfConvertDoesTheSame) {
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & kConvert) == 0 || ListHas(kTalk, spec.name) || ListHas(kChecked, spec.name)) continue;
    // Without words for source and target, so that the options that name them count.
    std::vector<std::string> plain = {"convert"};
    const bool ends = ListHas("source target megatron-path hf-path hf-model", spec.name);
    plain.push_back(ends ? "a" : "--source=a");
    if (spec.name != "target" && spec.name != "megatron-path" && spec.name != "hf-path") plain.push_back(ends ? "b" : "--target=b");
    if (spec.name == "source") plain = {"convert", "b"};
    if (spec.name == "megatron-path") plain.insert(plain.end(), {"--to", "megatron"});
    if (spec.name == "hf-path") plain.insert(plain.end(), {"--to", "hf"});
    const Result<ConvertOptions> before = Asked(plain);
    const std::string without = before ? Said(*before) : before.error().ToString();
    std::set<std::string> said;
    for (const std::string& spelling : Spellings(spec)) {
      std::vector<std::string> args = plain;
      args.push_back((spelling.size() == 1 ? "-" : "--") + spelling);
      if (spec.arity != Arity::kFlag) {
        ASSERT_TRUE(Values().contains(spec.name)) << "the table of this test lacks a value for --" << spec.name;
        const std::string& value = Values().at(spec.name);
        if (spec.arity == Arity::kTwo) args.push_back(value.substr(0, value.find(',')));
        args.push_back(spec.arity == Arity::kTwo ? value.substr(value.find(',') + 1) : value);
      }
      const Result<ConvertOptions> options = Asked(args);
      ASSERT_TRUE(options) << "--" << spelling << ": " << options.error().ToString();
      EXPECT_NE(Said(*options), without) << "--" << spelling << " is a dead flag";
      said.insert(Said(*options));
      std::string underscored = spelling;
      std::replace(underscored.begin(), underscored.end(), '-', '_');
      EXPECT_EQ(FindOption(underscored), &spec);
    }
    EXPECT_EQ(said.size(), 1U) << "the spellings of --" << spec.name << " differ";
  }
}

TEST(OptionTable, AWordThatIsOnlyCheckedIsChecked) {
  EXPECT_THAT(Asked({"convert", "a", "b", "--model-type", "GPT"}), IsOk());
  EXPECT_THAT(Asked({"convert", "a", "b", "--model-type", "T5"}), IsError(ErrorCode::kUnsupported, HasSubstr("`--model-type` other than GPT")));
  EXPECT_THAT(Asked({"convert", "a", "b", "--checkpoint-type", "hf"}), IsOk());
  EXPECT_THAT(Asked({"convert", "a", "b", "--checkpoint-type", "meta"}), IsError(ErrorCode::kUnsupported, HasSubstr("`--checkpoint-type` other than hf")));
}

TEST(OptionTable, EveryOptionOfEveryCommandIsParsed) {
  for (const CommandSpec& command : CommandTable()) {
    for (const OptionSpec& spec : OptionTable()) {
      for (const std::string& spelling : Spellings(spec)) {
        std::vector<std::string> args = {std::string(command.name), (spelling.size() == 1 ? "-" : "--") + spelling};
        if (spec.arity != Arity::kFlag) args.emplace_back("1");
        if (spec.arity == Arity::kTwo) args.emplace_back("1");
        const Result<Words> words = SettleWords(args, [](const std::string&) { return false; });
        if ((spec.commands & command.bit) == 0) {
          EXPECT_THAT(words, IsError(ErrorCode::kUsage, HasSubstr("does not apply"))) << command.name << " --" << spelling;
          continue;
        }
        ASSERT_TRUE(words) << command.name << " --" << spelling;
        ASSERT_OK_AND_ASSIGN(const Request request, ParseWords(*words, [](const char*) -> const char* { return nullptr; }));
        EXPECT_TRUE(request.values.contains(spec.name)) << command.name << " --" << spelling;
      }
    }
  }
}

TEST(OptionTable, NamesAreUnique) {
  std::set<std::string> seen;
  for (const OptionSpec& spec : OptionTable()) {
    for (const std::string& spelling : Spellings(spec)) EXPECT_TRUE(seen.insert(spelling).second) << spelling;
  }
}

TEST(OptionTable, TheReferenceNamesEveryOption) {
  std::ifstream file(CROSSDOCK_SOURCE_DIR "/docs/reference/cli.md");
  const std::string reference((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(reference.empty());
  for (const OptionSpec& spec : OptionTable()) {
    EXPECT_THAT(reference, HasSubstr(fmt::format("--{}", spec.name))) << spec.name;
  }
}

}  // namespace
}  // namespace crossdock::cli
