// SPDX-License-Identifier: Apache-2.0
#include "crossdock/live_save.h"

#include "live_run.h"

namespace crossdock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LiveSaveTest : public LiveRun {};

TEST_F(LiveSaveTest, DenseRunsGiveTheBytesOfTheOfflineTool) {
  WriteReference(kDense, "BF16", false);
  struct Case { LayoutOptions layout; int world; std::vector<void (*)(ExportOptions*)> ways; };
  for (const Case& one : std::vector<Case>{{Layout(1, 1), 1, {Keep, Blocks}},
                                           {Layout(2, 1), 2, {Keep, Blocks, AlignedBlocks}},
                                           {Layout(2, 2), 4, {Small, Tensors}},
                                           {Layout(2, 2, 1, 0, 2), 8, {Keep, Channels}},
                                           {Layout(4, 2), 8, {Tensors}}}) {
    StartRun(one.layout, one.world);
    for (const auto way : one.ways) SaveAndCompare(way);
  }
}

TEST_F(LiveSaveTest, TiedAndWideRunsToo) {
  WriteReference(kDense, "F32", true);
  StartRun(Layout(2, 2), 4);
  for (const auto way : {Narrow, Blocks}) SaveAndCompare(way);
}

TEST_F(LiveSaveTest, RunsOfExpertsToo) {
  WriteReference(kMoe, "BF16", false);
  struct Case { LayoutOptions layout; int world; std::vector<void (*)(ExportOptions*)> ways; };
  for (const Case& one : std::vector<Case>{{Layout(1, 1, 2), 2, {Keep, Blocks}}, {Layout(2, 1, 2, 1), 4, {Channels}}, {Layout(2, 2, 2, 2), 8, {Keep}}}) {
    StartRun(one.layout, one.world);
    for (const auto way : one.ways) SaveAndCompare(way);
  }
}

/// An iteration of the run itself, the optimizer's state included: also where copies of the model divide that, so that parts of a
/// tensor come from two ranks.
TEST_F(LiveSaveTest, IterationsOfTheRunHaveTheBytesOfTheOfflineTool) {
  ASSERT_THAT(Demo(dir_ + "/demo", {}), IsOk());
  ref_ = dir_ + "/demo/hf";
  struct Case { LayoutOptions layout; int world; bool snapshot; ErrorCode code; const char* told; };
  for (const Case& one : std::vector<Case>{{Layout(1, 1), 1, false, ErrorCode::kIncomplete, "a part of its optimizer's state only"},
                                           {Layout(2, 2), 4, true, ErrorCode::kUsage, "some ranks hold exp_avg_sq of a parameter and others do not"},
                                           {Layout(2, 1), 6, false, ErrorCode::kIncomplete, "no rank holds a part of an optimizer's state"}}) {
    StartRunFrom(dir_ + "/demo/full-state", one.layout, one.world, {{"use_distributed_optimizer", "False"}});
    ConvertOptions offline;
    offline.source = tree_;
    offline.target = dir_ + "/offline";
    offline.to = "megatron";
    offline.layout = layout_;
    fs::remove_all(offline.target);
    ASSERT_THAT(Convert(offline, {}), IsOk());
    const std::string step = Slurp(offline.target + "/latest_checkpointed_iteration.txt");
    const std::string unit = "/iter_" + std::string(7 - step.size(), '0') + step;
    const std::string common = Slurp(offline.target + unit + "/common.pt");
    fs::remove_all(dir_ + "/online");
    const auto options_of = [&](int rank) {
      ExportOptions options = Options(rank);
      options.to = "megatron";
      options.dst = dir_ + "/online";
      options.states = ranks_[static_cast<std::size_t>(rank)].states;
      options.distributed_optimizer = true;
      options.snapshot = one.snapshot;
      return options;
    };
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      const std::vector<LiveBuffer>& mine = ranks_[static_cast<std::size_t>(rank)].buffers;
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options_of(rank), comm));
      ASSERT_THAT(exporter->Validate(), IsOk());
      EXPECT_THAT(exporter->Save(std::stoll(step), mine), IsError(ErrorCode::kUsage, HasSubstr("common state")));
      const auto wrong = exporter->Save(std::stoll(step) + 1, mine, {}, rank == 0 ? common : "");
      EXPECT_THAT(wrong ? (*wrong)->Wait(60) : Result<ExportReport>(wrong.error()), IsError(ErrorCode::kUsage, HasSubstr("not that of this step")));
    });
    EXPECT_EQ(fs::exists(dir_ + "/online/latest_checkpointed_iteration.txt"), false);
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options_of(rank), comm));
      for (int twice = 0; twice < 2; ++twice) {
        ASSERT_OK_AND_ASSIGN(const auto job, exporter->Save(std::stoll(step), ranks_[static_cast<std::size_t>(rank)].buffers, {}, rank == 0 ? common : ""));
        ASSERT_OK_AND_ASSIGN(const ExportReport report, job->Wait(60));
        EXPECT_EQ(report.path, dir_ + "/online" + unit);
      }
    });
    ExpectSameTree(dir_ + "/online", dir_ + "/offline");
    // A part that nobody holds is told before anything is written.
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      ExportOptions options = options_of(rank);
      if (rank == 0) options.states.pop_back();
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
      EXPECT_THAT(exporter->Validate(), IsError(one.code, HasSubstr(one.told)));
    });
  }
}

/// Whichever rank holds it: Megatron loads no state without the parameter groups.
TEST_F(LiveSaveTest, StateIsSavedWithItsGroupsOnly) {
  ASSERT_THAT(Demo(dir_ + "/demo", {}), IsOk());
  ref_ = dir_ + "/demo/hf";
  StartRunFrom(dir_ + "/demo/full-state", Layout(1, 2), 2, {{"use_distributed_optimizer", "False"}});
  std::erase_if(ranks_[0].buffers, [](const LiveBuffer& buffer) { return convert::IsStateName(buffer.name); });
  ranks_[0].states.clear();
  const auto keep = [](const std::string& name) { return name.ends_with(".output_layer.weight") || name.ends_with(".final_layernorm.weight"); };
  std::erase_if(ranks_[1].states, [&](const std::string& name) { return !keep(name); });
  std::erase_if(ranks_[1].buffers, [&](const LiveBuffer& buffer) { return convert::IsStateName(buffer.name) && !keep(buffer.name); });
  ASSERT_FALSE(ranks_[1].states.empty());
  ASSERT_OK_AND_ASSIGN(const std::string bare, formats::torch_zip::WriteTorchFile(Value::MakeDict({{Value("iteration"), Value(std::int64_t{5})}}), "common"));
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ExportOptions options = Options(rank);
    options.to = "megatron";
    options.dst = dir_ + "/online";
    options.states = ranks_[static_cast<std::size_t>(rank)].states;
    options.distributed_optimizer = true;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    EXPECT_THAT(exporter->Save(5, ranks_[static_cast<std::size_t>(rank)].buffers), IsError(ErrorCode::kUsage, HasSubstr("none was handed over")));
    EXPECT_THAT(exporter->Save(5, ranks_[static_cast<std::size_t>(rank)].buffers, {}, rank == 0 ? bare : ""), IsError(ErrorCode::kUsage, HasSubstr("no parameter groups")));
  });
  EXPECT_FALSE(fs::exists(dir_ + "/online/latest_checkpointed_iteration.txt"));
}

/// Weights alone, of any kind of model; without a common state of the trainer's it is the one that a conversion makes.
TEST_F(LiveSaveTest, IterationsOfWeightsAlone) {
  WriteReference(kMoe, "BF16", false);
  StartRun(Layout(2, 2, 2, 2), 8);
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ExportOptions options = Options(rank);
    options.to = "megatron";
    options.dst = dir_ + "/online";
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    EXPECT_THAT(exporter->Save(12, ranks_[static_cast<std::size_t>(rank)].buffers), IsOk());
  });
  EXPECT_EQ(Slurp(dir_ + "/online/latest_checkpointed_iteration.txt"), "12");
  ConvertOptions offline;
  offline.source = tree_;
  offline.target = dir_ + "/offline";
  offline.to = "megatron";
  offline.layout = layout_;
  offline.iteration = 12;
  ASSERT_THAT(Convert(offline, {}), IsOk());
  ExpectSameTree(dir_ + "/online", dir_ + "/offline");
}

/// The tensors' types are what counts, not the reference's.
TEST_F(LiveSaveTest, TakesTheTypesThatTheRunHas) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  fs::remove_all(ref_);
  WriteReference(kDense, "F32", false);
  SaveAndCompare(Keep);
}

/// What the run was told differently from the reference stands in its checkpoint's arguments, and comes with `run_args`.
TEST_F(LiveSaveTest, TakesTheArgumentsOfTheRun) {
  WriteReference(kMoe, "BF16", false);
  StartRun(Layout(1, 1, 2), 2, {{"moe_router_topk", "3"}});
  SaveAndCompare([](ExportOptions* options) { options->run_args = {{"moe_router_topk", "3"}}; });
  EXPECT_THAT(Slurp(dir_ + "/online/step_007/config.json"), HasSubstr("\"num_experts_per_tok\": 3"));
  ExportOptions broken = Options(0);
  broken.run_args = {{"moe_router_topk", "three"}};
  ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(broken, MakeSoloComm()));
  EXPECT_THAT(exporter->Validate(), IsError(ErrorCode::kCorrupt, HasSubstr("moe_router_topk")));
}

/// Trainers drop layers of multi-token prediction: they are left out, or the reference's are taken, by whichever rank.
TEST_F(LiveSaveTest, TakesLayersOfPredictionFromTheReference) {
  WriteReference(kPredicting, "BF16", false);
  StartRun(Layout(1, 1, 2), 2, {}, "drop");
  SaveAndCompare([](ExportOptions* options) { options->mtp = "template"; });
  // The trainer may go elsewhere after planning.
  const fs::path home = fs::current_path();
  std::string deep = dir_;  // deeper than where it planned: `..` too many would still lead to the root
  for (int i = 0; i < 20; ++i) deep += "/d";
  fs::create_directories(deep);
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ExportOptions options = Options(rank);
    options.dst = dir_ + "/elsewhere_{step}";
    options.mtp = "template";
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    ASSERT_THAT(exporter->Validate(), IsOk());
    ASSERT_THAT(comm->AllGather(""), IsOk());
    if (rank == 0) fs::current_path(deep);
    ASSERT_THAT(comm->AllGather(""), IsOk());
    EXPECT_THAT(exporter->Save(1, ranks_[static_cast<std::size_t>(rank)].buffers), IsOk());
  });
  fs::current_path(home);
  ExpectSameTree(dir_ + "/elsewhere_1", dir_ + "/offline");
  EXPECT_THAT(Slurp(dir_ + "/online/step_007/model.safetensors"), HasSubstr("model.layers.3.eh_proj.weight"));
  SaveAndCompare([](ExportOptions* options) { options->mtp = "none"; });
  EXPECT_THAT(Slurp(dir_ + "/online/step_007/model.safetensors"), Not(HasSubstr("eh_proj")));
  ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(0), MakeSoloComm()));  // "keep": the run would hold them
  EXPECT_THAT(exporter->Validate(), IsError(ErrorCode::kUnsupported, HasSubstr("multi-token")));
}

TEST_F(LiveSaveTest, NeedsNoWeightsOfTheReference) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  ConvertOptions split;
  split.source = ref_;
  split.target = dir_ + "/split";
  split.to = "hf";
  split.max_shard_bytes = 30'000;
  ASSERT_THAT(Convert(split, {}), IsOk());
  ref_ = dir_ + "/split";
  Offline(Options(0));
  for (const auto& entry : fs::directory_iterator(ref_)) {
    if (entry.path().extension() == ".safetensors") fs::remove(entry.path());
  }
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(rank), comm));
    ASSERT_THAT(exporter->Validate(), IsOk());
    EXPECT_FALSE(exporter->tensors().empty());
    ASSERT_THAT(exporter->Save(1, ranks_[static_cast<std::size_t>(rank)].buffers), IsOk());
  });
  ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
}

/// Tensors may change as soon as Save has returned.
TEST_F(LiveSaveTest, SnapshotsAreWrittenBesideTheLoop) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 2), 4);
  Offline(Options(0));
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    RunningRank mine = ranks_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < mine.buffers.size(); ++i) mine.buffers[i].data = mine.memory[i].data();
    ExportOptions options = Options(rank);
    options.snapshot = true;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    ASSERT_OK_AND_ASSIGN(const auto job, exporter->Save(1, mine.buffers));
    for (std::string& bytes : mine.memory) std::fill(bytes.begin(), bytes.end(), '\x55');
    ASSERT_THAT(exporter->Flush(60), IsOk());
    EXPECT_TRUE(job->Done());
    ASSERT_OK_AND_ASSIGN(const ExportReport report, job->Wait());
    EXPECT_GE(report.copied_bytes, report.own_bytes);
  });
  ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
}

TEST(ExporterOptions, AreLookedAtBeforeAnythingBegins) {
  ExportOptions options;
  options.dst = "/o/{step}";
  options.reference = "/r";
  std::shared_ptr<Comm> solo = MakeSoloComm();
  EXPECT_THAT(Exporter::Make(options, solo), IsOk());
  for (const auto& [change, text] : std::vector<std::pair<std::function<void(ExportOptions*)>, const char*>>{
           {[](ExportOptions* o) { o->mtp = "maybe"; }, "multi-token"},
           {[](ExportOptions* o) { o->dtype = "int8"; }, "int8"},
           {[](ExportOptions* o) { o->fp8.device = "cuda"; }, "cuda"},
           {[](ExportOptions* o) { o->reference.clear(); }, "reference"},
           {[](ExportOptions* o) { o->dst = "{x}"; }, "field"}}) {
    ExportOptions wrong = options;
    change(&wrong);
    EXPECT_THAT(Exporter::Make(wrong, solo), IsError(ErrorCode::kUsage, HasSubstr(text)));
  }
}

}  // namespace
}  // namespace crossdock
