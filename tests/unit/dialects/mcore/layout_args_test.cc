// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/layout_args.h"

#include "mcore_samples.h"
#include "result_matchers.h"

namespace crossdock::dialects::mcore {
namespace {

using ::testing::HasSubstr;

layout::ParallelLayout Pp(int pp) {
  layout::ParallelLayout layout;
  layout.tp = 2;
  layout.pp = pp;
  return layout;
}

/// A layout's arguments, read back; also what they must hold.
layout::StageMap ThereAndBack(const layout::ParallelLayout& layout, std::int64_t layers, Value* args) {
  const Result<layout::StageMap> stages = layout::MakeStageMap(layout, layers);
  EXPECT_THAT(stages, IsOk());
  SetParallelArgs(layout, *stages, args);
  const Result<layout::ParallelLayout> back = LayoutOfArgs(*args);
  EXPECT_THAT(back, IsOk());
  const Result<layout::StageMap> again = layout::MakeStageMap(*back, layers);
  EXPECT_THAT(again, IsOk());
  EXPECT_EQ(back->tp, layout.tp);
  EXPECT_EQ(again->chunks, stages->chunks);
  return *stages;
}

TEST(LayoutArgsTest, TensorRanksOfExpertsAreThoseOfTheNewDivision) {
  layout::ParallelLayout layout = Pp(1);
  layout.ep = 3;
  Value args = Value::MakeDict();
  ThereAndBack(layout, 8, &args);
  EXPECT_EQ(args.Find("expert_tensor_parallel_size"), nullptr);
  layout.etp = 1;
  ThereAndBack(layout, 8, &args);
  EXPECT_EQ(args.GetInt("expert_tensor_parallel_size"), 1);
  layout.etp = 0;   // as many as tp: what another division left there must not stay
  ThereAndBack(layout, 8, &args);
  EXPECT_EQ(args.GetInt("expert_tensor_parallel_size"), 2);
}

TEST(LayoutArgsTest, EveryWayToDivideComesBack) {
  Value args = Value::MakeDict();
  ThereAndBack(Pp(2), 8, &args);
  EXPECT_TRUE(args.Find("virtual_pipeline_model_parallel_size")->is_null());
  EXPECT_TRUE(args.Find("pipeline_model_parallel_layout")->is_null());
  EXPECT_EQ(args.GetInt("world_size"), 4);

  layout::ParallelLayout layout = Pp(2);
  layout.vpp = 2;
  layout.last_stage_layers = 4;
  ThereAndBack(layout, 10, &args);
  EXPECT_EQ(args.GetInt("virtual_pipeline_model_parallel_size"), 2);
  EXPECT_EQ(args.GetInt("num_virtual_stages_per_pipeline_rank"), 2);
  EXPECT_TRUE(args.Find("num_layers_per_virtual_pipeline_stage")->is_null());
  EXPECT_EQ(args.GetInt("decoder_last_pipeline_num_layers"), 4);

  layout = Pp(2);
  layout.layers_per_virtual_stage = 2;
  ThereAndBack(layout, 8, &args);
  EXPECT_EQ(args.GetInt("virtual_pipeline_model_parallel_size"), 2);
  EXPECT_EQ(args.GetInt("num_layers_per_virtual_pipeline_stage"), 2);
  EXPECT_TRUE(args.Find("num_virtual_stages_per_pipeline_rank")->is_null());

  layout = Pp(2);
  layout.account_for_embedding = layout.account_for_loss = true;
  ThereAndBack(layout, 6, &args);
  EXPECT_EQ(args.GetBool("account_for_embedding_in_pipeline_split"), true);
  EXPECT_EQ(args.GetBool("account_for_loss_in_pipeline_split"), true);

  layout = Pp(2);
  layout.pipeline_layout = "Et*3|t||tL";
  ThereAndBack(layout, 5, &args);
  EXPECT_EQ(args.GetString("pipeline_model_parallel_layout"), "Et*3|t||tL");
  EXPECT_EQ(args.GetInt("virtual_pipeline_model_parallel_size"), 2);
  EXPECT_TRUE(args.Find("num_virtual_stages_per_pipeline_rank")->is_null());  // Megatron refuses both

  layout = Pp(2);
  layout.pipeline_layers = {6, 4};
  layout.vpp = 2;
  args.Set("custom_pipeline_layers", "5,5");
  ThereAndBack(layout, 10, &args);
  EXPECT_EQ(args.GetString("pipeline_model_parallel_layout"), "Et*3|t*2|t*3|t*2L");
  EXPECT_EQ(args.Find("custom_pipeline_layers"), nullptr);

  layout = Pp(2);
  layout.pipeline_layers = {6, 4};
  args.Set("mtp_num_layers", Value(2));   // which Megatron wants to find in the string
  ThereAndBack(layout, 10, &args);
  EXPECT_EQ(args.GetString("pipeline_model_parallel_layout"), "Et*6|t*4mmL");
}

TEST(LayoutArgsTest, ReadsTheLayoutInAllItsForms) {
  const Value words = Json(R"([["embedding", "decoder"], ["decoder", "decoder", "loss"]])");
  Opaque type;
  type.form = Opaque::Form::kReduce;
  type.module = "megatron.core.transformer.enums";
  type.name = "LayerType";
  const auto enumerated = [&](int number) {
    Opaque one = type;
    one.args = {Value(number)};
    return Value(std::move(one));
  };
  const Value enums = Value::MakeList({Value::MakeList({enumerated(1), enumerated(4)}), Value::MakeList({enumerated(4), enumerated(4), enumerated(2)})});
  Opaque object;
  object.form = Opaque::Form::kNewObj;
  object.name = "PipelineParallelLayerLayout";
  object.state = std::make_shared<Value>(Value::MakeDict());
  object.state->Set("input_data", "Et|ttL");
  for (const Value& form : {Value("Et|ttL"), words, enums, Value(object)}) {
    Value args = Json(R"({"pipeline_model_parallel_size": 2})");
    args.Set("pipeline_model_parallel_layout", form);
    ASSERT_OK_AND_ASSIGN(const layout::ParallelLayout layout, LayoutOfArgs(args));
    EXPECT_EQ(layout.pipeline_layout, "Et|ttL");
    EXPECT_EQ(LayoutFlags(args), " --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|ttL'");
  }
}

TEST(LayoutArgsTest, ReadsCustomPipelineLayers) {
  for (const char* text : {R"({"pipeline_model_parallel_size": 3, "custom_pipeline_layers": "7,8,9"})", R"({"pipeline_model_parallel_size": 3, "custom_pipeline_layers": [7, 8, 9]})"}) {
    ASSERT_OK_AND_ASSIGN(const layout::ParallelLayout layout, LayoutOfArgs(Json(text)));
    EXPECT_EQ(layout.pipeline_layers, (std::vector<std::int64_t>{7, 8, 9})) << text;
  }
}

TEST(LayoutArgsTest, RefusesWhatIsNoLayout) {
  for (const char* text : {R"({"tensor_model_parallel_size": 0})", R"({"pipeline_model_parallel_size": "2"})", R"({"virtual_pipeline_model_parallel_size": -1})",
                           R"({"decoder_first_pipeline_num_layers": 9000000000})", R"({"custom_pipeline_layers": "7,,8"})", R"({"custom_pipeline_layers": "7;8"})",
                           R"({"custom_pipeline_layers": 7})", R"({"pipeline_model_parallel_layout": 3})", R"({"pipeline_model_parallel_layout": [["tree"]]})"}) {
    EXPECT_THAT(LayoutOfArgs(Json(text)), IsError(ErrorCode::kCorrupt, HasSubstr("is no size of a layout"))) << text;
  }
  EXPECT_THAT(LayoutOfArgs(Json(R"({"standalone_embedding_stage": true})")), IsError(ErrorCode::kUnsupported, HasSubstr("standalone_embedding_stage")));
  EXPECT_THAT(LayoutOfArgs(Json(R"({"standalone_embedding_stage": false})")), IsOk());
}

TEST(LayoutArgsTest, FlagsAreThoseOfARunWithThisLayout) {
  EXPECT_EQ(LayoutFlags(Json(R"({"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1})")), "");
  Value args = Value::MakeDict();
  layout::ParallelLayout layout = Pp(2);
  layout.vpp = 2;
  layout.last_stage_layers = 4;
  ThereAndBack(layout, 10, &args);
  EXPECT_EQ(LayoutFlags(args), " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --decoder-last-pipeline-num-layers 4");
  layout = Pp(2);
  layout.account_for_loss = true;
  layout.layers_per_virtual_stage = 2;
  ThereAndBack(layout, 7, &args);
  EXPECT_EQ(LayoutFlags(args), " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --account-for-loss-in-pipeline-split");
}

}  // namespace
}  // namespace crossdock::dialects::mcore
