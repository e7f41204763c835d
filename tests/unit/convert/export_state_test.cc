// SPDX-License-Identifier: Apache-2.0
#include "convert/export_state.h"

#include "result_matchers.h"

namespace crossdock::convert {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two ranks of one place; one parameter of twelve elements.
Catalog StatelessRun() {
  Catalog run;
  run.entries.push_back({"mp_rank_00/model_optim_rng.pt#model/x.weight", Slot::kParam, DType::kBF16, {3, 4}, {}});
  run.SortEntries();
  return run;
}

Result<RunStates> StatesOf(std::vector<std::string> a, std::vector<std::string> b, Catalog* run) {
  return AddStates({std::move(a), std::move(b)}, {"mp_rank_00", "mp_rank_00"}, Twins(*run, {}), run);
}

TEST(ExportState, PartsBecomeChunksAndCopiesHolders) {
  Catalog run = StatelessRun();
  ASSERT_OK_AND_ASSIGN(const RunStates states, StatesOf({"optimizer.param.x.weight", "optimizer.exp_avg.x.weight[0:5]"}, {"optimizer.exp_avg.x.weight[5:12]", "optimizer.param.x.weight"}, &run));
  const std::int32_t master = run.Find("mp_rank_00/model_optim_rng.pt#optimizer/param/model/x.weight");
  const std::int32_t moment = run.Find("mp_rank_00/model_optim_rng.pt#optimizer/exp_avg/model/x.weight");
  ASSERT_GE(master, 0);
  ASSERT_GE(moment, 0);
  EXPECT_EQ(run.entries[static_cast<std::size_t>(moment)].shape, Shape({12}));
  EXPECT_EQ(run.entries[static_cast<std::size_t>(moment)].chunks[1].box, (Box{{5}, {7}}));
  EXPECT_EQ(states.holders.at({master, 0}), (std::vector<int>{0, 1}));
  EXPECT_EQ(states.holders.at({moment, 1}), std::vector<int>{1});
  EXPECT_EQ(states.parts[1].at("optimizer.exp_avg.x.weight[5:12]"), (LivePart{moment, 1}));
}

TEST(ExportState, WhatDoesNotFitTogetherIsRefusedByName) {
  struct Case { std::vector<std::string> a, b; ErrorCode code; const char* text; };
  for (const Case& one : std::vector<Case>{{{"optimizer.param.x.weight[0:5]"}, {}, ErrorCode::kIncomplete, "no rank holds a part"},
                                           {{"optimizer.param.x.weight[0:5]"}, {"optimizer.param.x.weight[6:12]"}, ErrorCode::kIncomplete, "no rank holds a part"},
                                           {{"optimizer.param.x.weight[0:5]"}, {"optimizer.param.x.weight[4:12]"}, ErrorCode::kUsage, "overlap"},
                                           {{"optimizer.param.x.weight[0:13]"}, {}, ErrorCode::kUsage, "beyond its parameter"},
                                           {{"optimizer.param.x.weight", "optimizer.param.x.weight[0:12]"}, {}, ErrorCode::kUsage, "twice"},
                                           {{}, {"optimizer.param.y.weight"}, ErrorCode::kUsage, "rank 1 holds state of the optimizer for a parameter that it does not hold"}}) {
    Catalog run = StatelessRun();
    EXPECT_THAT(StatesOf(one.a, one.b, &run), IsError(one.code, HasSubstr(one.text)));
  }
}

/// Dense parameters are divided by ranks of several expert ranks, experts that no tensor rank divides by ranks of several tensor ranks.
TEST(ExportState, RanksOfSeveralDirectoriesDivideOneState) {
  const std::string expert = "decoder.layers.0.mlp.experts.local_experts.0.linear_fc1.weight";
  const auto run_of = [&](const std::vector<std::string>& directories) {
    Catalog run;
    for (const std::string& dir : directories) {
      for (const std::string& name : {std::string("x.weight"), expert}) run.entries.push_back({dir + "/model_optim_rng.pt#model/" + name, Slot::kParam, DType::kBF16, {3, 4}, {}});
    }
    run.SortEntries();
    return run;
  };
  const auto entry = [](const Catalog& run, const std::string& dir, const std::string& name) { return run.Find(dir + "/model_optim_rng.pt#optimizer/param/model/" + name); };
  LayoutOptions layout;
  layout.ep = 2;
  const std::vector<std::string> by_expert = {"mp_rank_00_000", "mp_rank_00_001"};
  Catalog run = run_of(by_expert);
  ASSERT_OK_AND_ASSIGN(const RunStates dense, AddStates({{"optimizer.param.x.weight[0:5]", "optimizer.param." + expert}, {"optimizer.param.x.weight[5:12]", "optimizer.param." + expert}},
                                                        by_expert, Twins(run, layout), &run));
  ASSERT_GE(entry(run, by_expert[0], "x.weight"), 0);
  EXPECT_EQ(entry(run, by_expert[1], "x.weight"), -1);
  EXPECT_EQ(dense.parts[1].at("optimizer.param.x.weight[5:12]"), (LivePart{entry(run, by_expert[0], "x.weight"), 1}));
  EXPECT_EQ(dense.holders.at({entry(run, by_expert[1], expert), 0}), std::vector<int>{1});
  layout.ep = 1;
  layout.tp = 2;
  layout.etp = 1;
  const std::vector<std::string> by_tensor = {"mp_rank_00", "mp_rank_01"};
  run = run_of(by_tensor);
  const std::vector<std::vector<std::string>> halves = {{"optimizer.param." + expert + "[0:6]", "optimizer.param.x.weight"}, {"optimizer.param." + expert + "[6:12]", "optimizer.param.x.weight"}};
  ASSERT_OK_AND_ASSIGN(const RunStates experts, AddStates(halves, by_tensor, Twins(run, layout), &run));
  EXPECT_EQ(experts.parts[1].at(halves[1][0]), (LivePart{entry(run, by_tensor[0], expert), 1}));
  EXPECT_EQ(experts.holders.at({entry(run, by_tensor[1], "x.weight"), 0}), std::vector<int>{1});
  layout.etp = 2;  // then they are parts of an expert, and none is whole
  run = run_of(by_tensor);
  EXPECT_THAT(AddStates(halves, by_tensor, Twins(run, layout), &run), IsError(ErrorCode::kIncomplete, HasSubstr("no rank holds a part")));
}

/// As a stack of two layers that two places hold.
TEST(ExportState, IsSeenAsItsParameterIs) {
  Catalog run;
  for (const char* dir : {"mp_rank_00_000", "mp_rank_00_001"}) run.entries.push_back({std::string(dir) + "/model_optim_rng.pt#model/x.weight", Slot::kParam, DType::kBF16, {3, 4}, {}});
  const std::vector<std::string> directories = {"mp_rank_00_000", "mp_rank_00_001"};
  const std::vector<std::string> all = {"optimizer.param.x.weight", "optimizer.exp_avg.x.weight", "optimizer.exp_avg_sq.x.weight"};
  const auto see = [&](std::vector<std::vector<std::string>> names, dialects::mcore::OptimizerForm form) -> Result<dialects::mcore::GlobalView> {
    Catalog catalog = run;
    LayoutOptions layout;
    layout.pp = 2;
    const Twins twins(catalog, layout);
    CROSSDOCK_RETURN_IF_ERROR(AddStates(names, directories, twins, &catalog));
    const auto leaf = [&](const std::string& dir) { return expr::Leaf(catalog.Find(dir + "/model_optim_rng.pt#model/x.weight"), DType::kBF16, {3, 4}); };
    dialects::mcore::GlobalView view;
    view.identity = false;
    CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr stack, expr::Stack({leaf(directories[0]), leaf(directories[1])}, 0));
    view.catalog.entries.push_back({"decoder.layers.x.weight", Slot::kParam, DType::kBF16, stack->shape, {}});
    view.exprs.push_back(stack);
    CROSSDOCK_RETURN_IF_ERROR(SeeStates(catalog, twins, form, &view));
    return view;
  };
  ASSERT_OK_AND_ASSIGN(const dialects::mcore::GlobalView view, see({all, all}, dialects::mcore::OptimizerForm::kPlain));
  ASSERT_EQ(view.catalog.entries.size(), 4U);
  const std::int32_t master = view.catalog.Find("optimizer.state.fp32_param.decoder.layers.x.weight");
  ASSERT_GE(master, 0);
  EXPECT_EQ(view.catalog.entries[static_cast<std::size_t>(master)].dtype, DType::kF32);
  EXPECT_EQ(view.catalog.entries[static_cast<std::size_t>(master)].shape, Shape({2, 3, 4}));
  EXPECT_EQ(expr::LeafOrdinals(view.exprs[static_cast<std::size_t>(master)]).size(), 2U);
  EXPECT_THAT(see({all, {}}, dialects::mcore::OptimizerForm::kPlain), IsError(ErrorCode::kUsage, HasSubstr("some ranks hold")));
  EXPECT_THAT(see({{all[1]}, {all[1]}}, dialects::mcore::OptimizerForm::kPlain), IsError(ErrorCode::kIncomplete, HasSubstr("a part of its optimizer's state only")));
  EXPECT_THAT(see({{all[1], all[2]}, {all[1], all[2]}}, dialects::mcore::OptimizerForm::kPlain), IsOk());   // the parameter is its own master
  EXPECT_THAT(see({{all[1], all[2]}, {all[1], all[2]}}, dialects::mcore::OptimizerForm::kDistributed), IsError(ErrorCode::kIncomplete, HasSubstr("a part of its optimizer's state only")));
}

}  // namespace
}  // namespace crossdock::convert
