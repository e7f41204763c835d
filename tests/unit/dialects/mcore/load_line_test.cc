// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/load_line.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StoredState WithAdam() {
  StoredState state;
  state.args = Json(R"({"lr": 0.001, "min_lr": 1e-05, "weight_decay": 0.1, "bf16": true})");
  state.optimizer = state.scheduler = true;
  return state;
}

TEST(LoadLine, NamesTheOptimizersSettings) {
  StoredState state = WithAdam();
  EXPECT_EQ(LoadLine("/run", "/run/iter_0000020", state),
            "--load /run --use-checkpoint-args --bf16 --use-distributed-optimizer --lr 0.001 --min-lr 1e-05 --weight-decay 0.1 "
            "--use-checkpoint-opt_param-scheduler");
  state.args.Set("override_opt_param_scheduler", Value(true));
  EXPECT_THAT(LoadLine("/run", "/run/iter_0000020", state),
              AllOf(HasSubstr("--override-opt_param-scheduler"), Not(HasSubstr("--use-checkpoint-opt_param-scheduler"))));
}

TEST(LoadLine, SaysThatThereIsNoOptimizerUnlessReleaseDoes) {
  StoredState state;
  EXPECT_EQ(LoadLine("/run", "/run/iter_0000020", state), "--load /run --use-checkpoint-args --no-load-optim");
  state.release = true;
  EXPECT_EQ(LoadLine("/run", "/run/release", state), "--load /run --use-checkpoint-args");
}

TEST(LoadLine, SaysWhatMegatronDoesNotReadFromACheckpoint) {
  StoredState state;
  state.release = true;
  state.args = Json(R"({"swiglu": false, "quick_geglu": true, "glu_linear_offset": 1, "activation_func_clamp_value": 7.0, "softmax_type": "learnable"})");
  EXPECT_EQ(LoadLine("R", "R/release", state),
            "--load R --use-checkpoint-args --quick-geglu --activation-func-clamp-value 7 --glu-linear-offset 1 --softmax-type learnable");
  state.args = Json(R"({"qk_l2_norm": true, "no_rope_freq": [0, 1, 1], "num_experts": 4, "moe_apply_probs_on_input": true})");
  EXPECT_EQ(LoadLine("R", "R/release", state), "--load R --use-checkpoint-args --moe-apply-probs-on-input --qk-l2-norm --no-rope-freq '([0,1,1])'");
  state.args = Json(R"({"experimental_attention_variant": "gated_delta_net", "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 10,
                        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_attention_freq": [1, 0], "attention_output_gate": true})");
  EXPECT_EQ(LoadLine("R", "R/release", state),
            "--load R --use-checkpoint-args --attention-output-gate --experimental-attention-variant gated_delta_net --linear-conv-kernel-dim 4 --linear-key-head-dim 8 "
            "--linear-value-head-dim 10 --linear-num-key-heads 2 --linear-num-value-heads 6 --linear-attention-freq '([1,0])'");
  state.args = Json(R"({"softmax_type": "vanilla", "glu_linear_offset": 0.0, "linear_conv_kernel_dim": 4, "no_rope_freq": null, "linear_attention_freq": 4})");
  EXPECT_EQ(LoadLine("R", "R/release", state), "--load R --use-checkpoint-args");
}

TEST(LoadLine, TakesNoWordsThatAShellWouldRun) {
  StoredState state;
  state.release = true;
  for (const char* word : {"x; rm -rf .", "$(id)", "a b", "", "`id`", "a\nb"}) {
    state.args = Value::MakeDict();
    state.args.Set("softmax_type", Value(word));
    EXPECT_EQ(LoadLine("R", "R/release", state), "--load R --use-checkpoint-args") << word;
    state.args = Json(R"({"optimizer": "muon"})");
    state.args.Set("muon_scale_mode", Value(word));
    state.optimizer = true;
    EXPECT_EQ(LoadLine("R", "R/release", state), "--load R --use-checkpoint-args --optimizer muon") << word;
    state.optimizer = false;
  }
}

TEST(LoadLine, OfLegacyTreesNamesTheirOwnForm) {
  const std::string line = LoadLine("/run", "/run/iter_0000020", WithAdam());
  EXPECT_THAT(LegacyLoadLine(line, {false, true, false}), AllOf(HasSubstr("--ckpt-format torch --no-load-rng"), Not(HasSubstr("--use-distributed-optimizer"))));
  EXPECT_THAT(LegacyLoadLine(line, {true, false, false}), AllOf(HasSubstr("--use-distributed-optimizer"), Not(HasSubstr("--no-load-rng"))));
  EXPECT_THAT(LegacyLoadLine(line, {false, false, true}), HasSubstr("--use-torch-fsdp2 --ckpt-format torch_dcp"));
}

TEST(LoadLine, NamesTheTokenizerThatTravelsAlong) {
  StoredState state;
  state.release = state.tokenizer = true;
  EXPECT_THAT(LoadLine("R", "R/release", state), HasSubstr("--tokenizer-type HuggingFaceTokenizer --tokenizer-model R/release/hf"));
}

TEST(LoadLine, QuotesALayoutForTheShell) {
  StoredState state;
  state.args = Json(R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Et*2|tL"})");
  EXPECT_THAT(LoadLine("R", "R/release", state),
              HasSubstr("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*2|tL'"));
}

/// Written, resharded into the same layout, and read: one line.
TEST(LoadLine, IsTheSameForWriterResharderAndReader) {
  for (const bool carried : {true, false}) {
    const Catalog source = McoreSource("llama", TinyArgs(), true, false, 56, carried);
    ASSERT_OK_AND_ASSIGN(const HubState hub, ReadHub(source, {}));
    TargetOptions options;
    options.layout.tp = 2;
    if (!carried) options.set_args = {{"lr", "0.001"}, {"min_lr", "1e-05"}, {"weight_decay", "0.1"}};
    ASSERT_OK_AND_ASSIGN(TargetState written, WriteHub(hub, options));
    written.catalog.root = "TARGET/iter_0000020";
    ASSERT_OK_AND_ASSIGN(const TargetState resharded, Reshard(written.catalog, options));
    EXPECT_EQ(resharded.load_line.front(), written.load_line.front());
    ASSERT_OK_AND_ASSIGN(const HubState read, ReadHub(written.catalog, {}));
    EXPECT_EQ("--load TARGET" + read.load_hint.substr(std::string("--load TARGET/iter_0000020").size()), written.load_line.front());
  }
}

}  // namespace
}  // namespace crossdock::dialects::mcore
