// SPDX-License-Identifier: Apache-2.0
#include "convert/target.h"

#include "convert/demo_model.h"
#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Source At(const std::string& path) {
  Source source;
  source.label = path;
  source.found.path = path;
  return source;
}

/// A Megatron checkpoint of nothing but an embedding.
struct EmbeddingOnly : formats::CheckpointReader {
  explicit EmbeddingOnly(std::int64_t rows) { catalog_.entries.push_back({"embedding.word_embeddings.weight", Slot::kParam, DType::kBF16, {rows, 4}, {}}); }
  const Catalog& catalog() const override { return catalog_; }
  Result<ByteRange> Locate(std::int32_t /*entry*/, std::int32_t /*chunk*/) const override { return ByteRange{}; }
  Result<Value> LoadObject(const ObjectRef& ref) const override { return MakeError(ErrorCode::kUnsupported, "none").WithTensor(ref.name); }
  Catalog catalog_;
};

TEST(Target, ReshardsWhileTheVocabularyKeepsItsSize) {
  Source source = At("/a/b");
  source.found.kind = formats::Kind::kMegatron;
  source.reader = std::make_unique<EmbeddingOnly>(384);
  for (const auto& [tp, divisor, can] : {std::tuple{3, 0, true}, {4, 0, true}, {5, 0, false}, {1, 7, false}, {1, 128, false}}) {
    ConvertOptions options;
    options.layout.tp = tp;
    if (divisor != 0) options.vocab_divisor = divisor;  // a size that is asked for is made, whatever the source has
    EXPECT_EQ(CanReshard(source, formats::Kind::kMegatron, options), can) << tp << " " << divisor;
  }
}

TEST(Target, LiesApartFromTheSource) {
  EXPECT_THAT(CheckApart(At("/a/b"), "/a/c", "/a/c"), IsOk());
  EXPECT_THAT(CheckApart(At("/a/b"), "/a/bc", "/a/bc"), IsOk());
  EXPECT_THAT(CheckApart(At("/a/run/iter_0000010"), "/a/run", "/a/run/iter_0000020"), IsOk());  // a new step beside
  for (const char* unit : {"/a/b", "/a/b/", "/a/./b", "/a/x/../b", "/a/b/c", "/a", "/"}) {
    EXPECT_THAT(CheckApart(At("/a/b"), unit, unit), IsError(ErrorCode::kUsage, HasSubstr("must lie apart"))) << unit;
  }
}

TEST(Target, LiesApartFromTheTemplate) {
  Source source = At("/a/b");
  source.reference.emplace().dir = "/t/model";
  EXPECT_THAT(CheckApart(source, "/t/other", "/t/other"), IsOk());
  EXPECT_THAT(CheckApart(source, "/t", "/t/iter_0000020"), IsOk());  // beside it, in one root
  for (const char* unit : {"/t/model", "/t/x/../model/", "/t/model/out", "/t/model/iter_0000020", "/t"}) {
    EXPECT_THAT(CheckApart(source, unit, unit), IsError(ErrorCode::kUsage, HasSubstr("template and target must lie apart"))) << unit;
  }
  source.reference->dir = "/a/b";  // the source is its own template
  EXPECT_THAT(CheckApart(source, "/a/c", "/a/c"), IsOk());
}

TEST(Target, ReportsLieOutsideTheSource) {
  EXPECT_THAT(CheckReportApart(At("/a/b"), "/a/receipt.json"), IsOk());
  for (const char* report : {"/a/b/config.json", "/a/b/../b/x/y.json", "/a/b"}) {
    EXPECT_THAT(CheckReportApart(At("/a/b"), report), IsError(ErrorCode::kUsage, HasSubstr("nothing is ever written into a source"))) << report;
  }
}

TEST(Target, ManifestsLieOutsideWhatIsToBeMade) {
  Target target;
  target.root = "/run";
  target.unit = "/run/iter_0000020";
  EXPECT_THAT(CheckManifestApart(target, "/run/manifest.json"), IsOk());
  EXPECT_THAT(CheckManifestApart(target, "/run/iter_0000020/manifest.json"), IsError(ErrorCode::kUsage, HasSubstr("cannot lie in it")));
  target.unit.clear();  // `crossdock manifest` has no target
  EXPECT_THAT(CheckManifestApart(target, "/run/iter_0000020/manifest.json"), IsOk());
}

TEST(Target, TellsSlotsByName) {
  const auto slot = [](const char* name) {
    Entry entry;
    entry.name = name;
    return SlotOfTarget(entry);
  };
  EXPECT_EQ(slot("param/w"), Slot::kParam);
  EXPECT_EQ(slot("optim/muon_mu/w"), Slot::kMuonMu);
  EXPECT_EQ(slot("optim/unheard_of/w"), Slot::kParam);
  EXPECT_EQ(slot("optimizer.state.exp_avg.decoder.final_layernorm.weight"), Slot::kAdamMu);
  EXPECT_EQ(slot("optimizer.state.param.decoder.final_layernorm.weight"), Slot::kMaster);
}

struct Refusal {
  std::string_view name;
  void (*change)(ConvertOptions*);
  ErrorCode code;
  std::string_view words;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }
class TargetRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(TargetRefuses, WithWords) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  ConvertOptions options;
  options.target = "out";
  options.to = "megatron";
  GetParam().change(&options);
  EXPECT_THAT(PrepareTarget(model.source, options), IsError(GetParam().code, HasSubstr(std::string(GetParam().words))));
}

INSTANTIATE_TEST_SUITE_P(
    Table, TargetRefuses,
    ::testing::Values(
        Refusal{"Layers", [](ConvertOptions* o) { o->layout.pp = 3; }, ErrorCode::kUsage, "4 layers do not divide by pp 3"},
        Refusal{"Heads", [](ConvertOptions* o) { o->layout.tp = 8; }, ErrorCode::kUsage, "num_key_value_heads 2"},
        Refusal{"Vocabulary", [](ConvertOptions* o) { o->padded_vocab = 900; }, ErrorCode::kUsage, "900"},
        Refusal{"LayoutForHf", [](ConvertOptions* o) { o->to = "hf"; o->layout.tp = 2; o->layout.given = true; }, ErrorCode::kUsage, "`--tp`"},
        Refusal{"SetForHf", [](ConvertOptions* o) { o->to = "hf"; o->set_args = {{"lr", "1"}}; }, ErrorCode::kUsage, "`--set`"},
        Refusal{"OptimForHf", [](ConvertOptions* o) { o->to = "hf"; o->require_optim = true; }, ErrorCode::kUnsupported, "`--require-optim`"},
        Refusal{"Consumer", [](ConvertOptions* o) { o->consumer = "maxtext@0.2"; }, ErrorCode::kUnsupported, "`--for maxtext`"},
        Refusal{"NoConsumer", [](ConvertOptions* o) { o->consumer = "tensorflow"; }, ErrorCode::kUsage, "`--for`"},
        Refusal{"MisspeltConsumer", [](ConvertOptions* o) { o->consumer = "megatron-ml"; }, ErrorCode::kUsage, "did you mean `megatron-lm`?"},
        Refusal{"OldMegatron", [](ConvertOptions* o) { o->consumer = "megatron-lm@0.5"; }, ErrorCode::kUnsupported, "Megatron-LM before 0.12 is not written for"},
        Refusal{"NearlyOldMegatron", [](ConvertOptions* o) { o->consumer = "megatron-lm@0.11.9"; }, ErrorCode::kUnsupported, "`megatron-lm@0.11.9`"},
        Refusal{"MajorOnly", [](ConvertOptions* o) { o->consumer = "megatron-lm@0"; }, ErrorCode::kUnsupported, "before 0.12"},
        Refusal{"NoVersion", [](ConvertOptions* o) { o->consumer = "megatron-lm@"; }, ErrorCode::kUsage, "@VERSION"},
        Refusal{"TwoDots", [](ConvertOptions* o) { o->consumer = "megatron-lm@0..19"; }, ErrorCode::kUsage, "@VERSION"},
        Refusal{"LastDot", [](ConvertOptions* o) { o->consumer = "megatron-lm@0.19."; }, ErrorCode::kUsage, "@VERSION"},
        Refusal{"FiveNumbers", [](ConvertOptions* o) { o->consumer = "megatron-lm@0.1.2.3.4"; }, ErrorCode::kUsage, "@VERSION"},
        Refusal{"VersionWithoutName", [](ConvertOptions* o) { o->consumer = "@0.19"; }, ErrorCode::kUsage, "@VERSION"},
        Refusal{"KeepWithoutCast", [](ConvertOptions* o) { o->keep_dtype = {"*norm*"}; }, ErrorCode::kUsage, "without `--dtype`"},
        Refusal{"Memory", [](ConvertOptions* o) { o->memory = 4096; }, ErrorCode::kUsage, "memory"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Target, WritesForEveryMegatronSinceTheOldestThatIsTested) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  for (const char* consumer : {"", "megatron-lm", "megatron-lm@0.12", "megatron-lm@0.12.1", "megatron-lm@0.19", "megatron-lm@1"}) {
    ConvertOptions options;
    options.target = "out";
    options.to = "megatron";
    options.consumer = consumer;
    EXPECT_THAT(PrepareTarget(model.source, options), IsOk()) << consumer;
  }
}

TEST(Target, ValuesThatRulesScaleNeedLeave) {
  ASSERT_OK_AND_ASSIGN(DemoModel model, MakeDemoModel());
  for (dialects::HubTensor& tensor : model.source.hub.tensors) {
    if (tensor.name != "model.norm.weight") continue;
    ASSERT_OK_AND_ASSIGN(tensor.expr, expr::Scale(tensor.expr, 3.0));
  }
  ConvertOptions options;
  options.target = "out";
  options.to = "hf";
  EXPECT_THAT(PrepareTarget(model.source, options), IsError(ErrorCode::kUnsupported, AllOf(HasSubstr("model.norm.weight"), HasSubstr("--allow inexact"))));
  options.allow = {"inexact"};
  EXPECT_THAT(PrepareTarget(model.source, options), IsOk());
  // A cast that was asked for is no surprise.
  ASSERT_OK_AND_ASSIGN(const DemoModel plain, MakeDemoModel());
  options.allow.clear();
  options.dtype = "fp16";
  EXPECT_THAT(PrepareTarget(plain.source, options), IsOk());
}

TEST(Target, IsTheSamePlanWhateverTheThreads) {
  ASSERT_OK_AND_ASSIGN(const DemoModel model, MakeDemoModel());
  ConvertOptions options;
  options.target = "out";
  options.to = "full-state";
  options.threads = 1;
  ASSERT_OK_AND_ASSIGN(const Target one, PrepareTarget(model.source, options));
  options.threads = 7;
  ASSERT_OK_AND_ASSIGN(const Target seven, PrepareTarget(model.source, options));
  EXPECT_EQ(one.plan.hash, seven.plan.hash);
  EXPECT_EQ(one.unit, "out");
  EXPECT_EQ(one.plan.bytes_written, one.plan.bytes_read);
}

}  // namespace
}  // namespace crossdock::convert
