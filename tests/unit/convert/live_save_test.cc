// SPDX-License-Identifier: Apache-2.0
#include "crossdock/live_save.h"

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "convert/live_names.h"
#include "convert/source.h"
#include "crossdock/convert.h"
#include "dialects/mcore/legacy_optimizer.h"
#include "family/bind.h"
#include "family/detect.h"
#include "formats/registry.h"
#include "formats/torch_zip/torch_file.h"
#include "kernels/cast.h"
#include "result_matchers.h"

namespace crossdock {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kDense = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 8, "intermediate_size": 40, "vocab_size": 50, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": TIED, "attention_bias": false, "torch_dtype": "bfloat16"})";
constexpr const char* kMoe = R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "norm_topk_prob": true, "vocab_size": 50, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu", "max_position_embeddings": 64,
  "tie_word_embeddings": TIED, "attention_bias": false, "torch_dtype": "bfloat16"})";

/// Like DeepSeek-V3, with one layer of multi-token prediction.
constexpr const char* kPredicting = R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 4, "intermediate_size": 24, "moe_intermediate_size": 8, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
  "kv_lora_rank": 6, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 5, "vocab_size": 50, "num_nextn_predict_layers": 1, "n_group": 2, "topk_group": 1,
  "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": TIED, "attention_bias": false, "torch_dtype": "bfloat16"})";

using Tree = std::map<std::string, std::string>;

std::string Slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Tree ReadTree(const std::string& dir) {
  Tree files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), dir).string()] = Slurp(entry.path());
  }
  return files;
}

void ExpectSameTree(const std::string& dir, const std::string& expected) {
  const Tree a = ReadTree(dir), b = ReadTree(expected);
  for (const auto& [name, bytes] : b) {
    ASSERT_TRUE(a.contains(name)) << name;
    if (bytes.size() < 20'000 && name.ends_with(".json")) {
      EXPECT_EQ(a.at(name), bytes) << name;
    } else {
      EXPECT_TRUE(a.at(name) == bytes) << name;
    }
  }
  EXPECT_EQ(a.size(), b.size());
}

/// The tensors of one rank as a running model holds them.
struct RunningRank {
  RankPlace place;
  std::vector<std::string> states;
  std::vector<std::string> memory;
  std::vector<LiveBuffer> buffers;
};

class LiveSaveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "crossdock-save-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  /// A model in one file, a tokenizer and the like beside it. Types are bf16, or f32.
  void WriteReference(std::string config, const char* type, bool tied) {
    config.replace(config.find("TIED"), 4, tied ? "true" : "false");
    ref_ = dir_ + "/ref";
    fs::create_directories(ref_);
    std::ofstream(ref_ + "/config.json") << config;
    std::ofstream(ref_ + "/tokenizer.json") << "{\"words\": []}";
    std::ofstream(ref_ + "/generation_config.json") << "{\"eos_token_id\": 1}";
    const family::ModelConfig values{"hf", *ParseJson(config)};
    std::vector<const family::FamilyFile*> families;
    for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
    ASSERT_OK_AND_ASSIGN(const family::FamilyFile* family, family::DetectByConfig(values, families));
    ASSERT_OK_AND_ASSIGN(const family::Model model, family::EvaluateModel(*family, values));
    family::BindOptions options;
    options.dialect = "hf";
    ASSERT_OK_AND_ASSIGN(const family::Binding binding, family::Bind(*family, model, options));
    const DType dtype = *DTypeFromName(type);
    std::string header = "{", data;
    std::uint64_t state = 7;
    for (const family::HubTensor& tensor : binding.hub) {
      if (tied && tensor.name == "lm_head.weight") continue;
      const std::size_t begin = data.size();
      for (std::int64_t i = 0; i < CheckedCount(tensor.shape); ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        std::byte value[4];
        kernels::StoreFromDouble(static_cast<double>(static_cast<std::int64_t>(state >> 40U) % 4001 - 2000) / 512.0, value, dtype);
        data.append(reinterpret_cast<const char*>(value), static_cast<std::size_t>(ElementSize(dtype)));
      }
      std::string shape;
      for (const std::int64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
      header += (header.size() == 1 ? "" : ",") + std::string("\"") + tensor.name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xFFU);
    std::ofstream(ref_ + "/model.safetensors", std::ios::binary) << length << header << data;
  }

  /// The run's own checkpoint, and what its ranks hold.
  void StartRun(const LayoutOptions& layout, int world, std::vector<std::pair<std::string, std::string>> set_args = {}, const char* mtp = "keep") {
    StartRunFrom(ref_, layout, world, std::move(set_args), mtp);
  }

  /// Of a source with the optimizer's state its ranks hold that too: the copies of the model divide it.
  void StartRunFrom(const std::string& source, const LayoutOptions& layout, int world, std::vector<std::pair<std::string, std::string>> set_args, const char* mtp = "keep") {
    layout_ = layout;
    layout_.given = true;
    tree_ = dir_ + "/tree";
    fs::remove_all(tree_);
    ConvertOptions options;
    options.source = source;
    options.target = tree_;
    options.to = "megatron-legacy";
    options.layout = layout_;
    options.set_args = std::move(set_args);
    options.mtp = mtp;
    ASSERT_THAT(Convert(options, {}), IsOk());
    const auto storage = io::MakeLocalStorage();
    ASSERT_OK_AND_ASSIGN(const formats::Found found, formats::Recognise(*storage, tree_, std::nullopt, std::nullopt));
    fs::remove_all(found.path + "/hf");  // no trainer writes it
    ASSERT_OK_AND_ASSIGN(const auto reader, formats::Open(*storage, found));
    const Catalog& catalog = reader->catalog();
    ranks_.clear();
    ranks_.resize(static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank) {
      RunningRank& mine = ranks_[static_cast<std::size_t>(rank)];
      ASSERT_OK_AND_ASSIGN(mine.place, PlaceOfRank(layout_, {rank, world, 1}));
      std::string directory = "mp_rank_0" + std::to_string(mine.place.tensor);
      if (layout_.pp > 1) directory += "_00" + std::to_string(mine.place.stage);
      if (layout_.ep > 1) directory += "_00" + std::to_string(mine.place.expert);
      for (const Entry& entry : catalog.entries) {
        const auto name = convert::LiveName(entry.name);
        if (!name || !entry.name.starts_with(directory + "/")) continue;
        mine.memory.push_back(BytesOf(*reader, entry));
        mine.buffers.push_back({*name, nullptr, static_cast<std::int64_t>(mine.memory.back().size()), std::string(DTypeName(entry.dtype)), {entry.shape.begin(), entry.shape.end()}});
      }
      AddStates(*reader, directory, rank / layout_.tp % (world / layout_.tp / layout_.pp), world / layout_.tp / layout_.pp, &mine);
      for (std::size_t i = 0; i < mine.buffers.size(); ++i) mine.buffers[i].data = mine.memory[i].data();
      ASSERT_FALSE(mine.buffers.empty()) << directory;
    }
  }

  static std::string BytesOf(const formats::CheckpointReader& reader, const Entry& entry) {
    const Catalog& catalog = reader.catalog();
    std::string bytes;
    for (std::size_t i = 0; i < entry.chunks.size(); ++i) {
      const Result<ByteRange> range = reader.Locate(catalog.Find(entry.name), static_cast<std::int32_t>(i));
      bytes += Slurp(io::JoinPath(catalog.root, catalog.files[static_cast<std::size_t>(entry.chunks[i].file)].path)).substr(static_cast<std::size_t>(range->offset), static_cast<std::size_t>(range->length));
    }
    return bytes;
  }

  /// The file numbers the states; a run calls them by their parameters. Copy `part` of `parts` holds its share of each.
  static void AddStates(const formats::CheckpointReader& reader, const std::string& directory, int part, int parts, RunningRank* mine) {
    const Catalog& catalog = reader.catalog();
    const std::string file = directory + "/model_optim_rng.pt";
    const Value& object = catalog.objects.at(file);
    if (object.Find("optimizer") == nullptr) return;
    std::vector<dialects::mcore::GroupedParameter> parameters;
    for (const auto& [name, value] : object.Find("model")->as_dict()->items) {
      if (const std::int32_t at = catalog.Find(file + "#model/" + *name.as_string()); at >= 0) parameters.push_back({*name.as_string(), catalog.entries[static_cast<std::size_t>(at)].shape, false});
    }
    ASSERT_OK_AND_ASSIGN(const dialects::mcore::LegacyChain chain, dialects::mcore::ChainOf(*object.Find("optimizer"), false));
    ASSERT_OK_AND_ASSIGN(const std::vector<dialects::mcore::OptimizerPlace> places, dialects::mcore::OptimizerPlaces(chain, parameters));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      for (const std::string state : {"param", "exp_avg", "exp_avg_sq"}) {
        const std::string stored = state == "param" ? "fp32_from_fp16_params/" + std::to_string(places[i].group) + "/" + std::to_string(places[i].index)
                                                    : "optimizer/state/" + std::to_string(places[i].number) + "/" + state;
        const std::int32_t at = catalog.Find(file + "#optimizer/" + stored);
        ASSERT_GE(at, 0) << stored;
        const Entry& entry = catalog.entries[static_cast<std::size_t>(at)];
        const std::int64_t count = CheckedCount(entry.shape), begin = count * part / parts, end = count * (part + 1) / parts;
        std::string name = "optimizer." + state + "." + parameters[i].name;
        if (parts > 1) name += "[" + std::to_string(begin) + ":" + std::to_string(end) + "]";
        mine->states.push_back(name);
        mine->memory.push_back(BytesOf(reader, entry).substr(static_cast<std::size_t>(4 * begin), static_cast<std::size_t>(4 * (end - begin))));
        mine->buffers.push_back({name, nullptr, 4 * (end - begin), "F32", {end - begin}});
      }
    }
  }

  [[nodiscard]] ExportOptions Options(int rank) const {
    ExportOptions options;
    options.dst = dir_ + "/online/step_{step:03d}";
    options.reference = ref_;
    options.layout = layout_;
    options.place = ranks_[static_cast<std::size_t>(rank)].place;
    options.threads = 1 + rank % 2;
    options.memory = std::int64_t{64} << 20U;
    return options;
  }

  /// What convert makes of the run's checkpoint with the same words.
  void Offline(const ExportOptions& as) {
    ConvertOptions options;
    options.source = tree_;
    options.target = dir_ + "/offline";
    options.to = "hf";
    options.hf_template = ref_;
    options.dtype = as.dtype;
    options.fp8 = as.fp8;
    options.max_shard_bytes = as.max_shard_bytes;
    options.mtp = as.mtp == "none" ? "keep" : as.mtp;
    options.force = true;
    ASSERT_THAT(Convert(options, {}), IsOk());
  }

  using Body = std::function<void(int rank, std::shared_ptr<Comm> comm)>;
  void OnAllRanks(const Body& body, double seconds = 60) {
    const std::string meet = dir_ + "/meet";
    std::vector<std::thread> threads;
    const int size = static_cast<int>(ranks_.size());
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        std::shared_ptr<Comm> comm = *MakeFileComm({meet, rank, size, seconds});
        body(rank, comm);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void SaveAndCompare(const std::function<void(ExportOptions*)>& change) {
    ExportOptions as = Options(0);
    change(&as);
    Offline(as);
    fs::remove_all(dir_ + "/online");
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      ExportOptions options = Options(rank);
      change(&options);
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
      for (const std::int64_t step : {7, 8}) {
        ASSERT_OK_AND_ASSIGN(const auto job, exporter->Save(step, ranks_[static_cast<std::size_t>(rank)].buffers));
        ASSERT_OK_AND_ASSIGN(const ExportReport report, job->Wait(60));
        EXPECT_EQ(report.path, dir_ + "/online/step_00" + std::to_string(step));
        EXPECT_GT(report.bytes, 0);
      }
    });
    ExpectSameTree(dir_ + "/online/step_007", dir_ + "/offline");
    ExpectSameTree(dir_ + "/online/step_008", dir_ + "/offline");
    for (const auto& entry : fs::directory_iterator(dir_ + "/online")) EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }

  std::string dir_, ref_, tree_;
  LayoutOptions layout_;
  std::vector<RunningRank> ranks_;
};

LayoutOptions Layout(int tp, int pp, int ep = 1, int etp = 0, int vpp = 1) {
  LayoutOptions layout;
  layout.tp = tp;
  layout.pp = pp;
  layout.ep = ep;
  layout.etp = etp;
  layout.vpp = vpp;
  return layout;
}

void Keep(ExportOptions* /*options*/) {}
void Narrow(ExportOptions* options) { options->dtype = "bf16"; }
void Small(ExportOptions* options) { options->max_shard_bytes = 20'000; }
void Blocks(ExportOptions* options) {
  options->fp8.strategy = "block";
  options->fp8.block = {16, 12};
}
void AlignedBlocks(ExportOptions* options) {
  options->fp8.strategy = "block";
  options->fp8.block = {8, 4};
}
void Channels(ExportOptions* options) { options->fp8.strategy = "channel"; }
void Tensors(ExportOptions* options) { options->fp8.strategy = "tensor"; }

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

TEST_F(LiveSaveTest, AFailureOnOneRankIsTheSameOnAllAndTouchesNothing) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ExportOptions options = Options(rank);
    options.dst = dir_ + "/online";
    options.overwrite = true;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    std::vector<LiveBuffer> buffers = ranks_[static_cast<std::size_t>(rank)].buffers;
    ASSERT_THAT(exporter->Save(1, buffers), IsOk());
    const Tree before = rank == 0 ? ReadTree(dir_ + "/online") : Tree();
    std::vector<LiveBuffer> fewer = buffers;
    if (rank == 1) std::erase_if(fewer, [](const LiveBuffer& b) { return b.name.ends_with("linear_qkv.weight"); });
    EXPECT_THAT(exporter->Save(2, fewer), IsError(ErrorCode::kUsage, AllOf(HasSubstr("not those of this rank"), HasSubstr("on rank 1"))));
    std::vector<LiveBuffer> other = buffers;
    if (rank == 0) other[0].shape.push_back(1);
    EXPECT_THAT(exporter->Save(2, other), IsError(ErrorCode::kUsage, AllOf(HasSubstr("of another shape"), HasSubstr("on rank 0"))));
    if (rank == 1) {
      EXPECT_THAT(exporter->Refuse(2, MakeError(ErrorCode::kIo, "the loop raised")), IsError(ErrorCode::kIo, HasSubstr("the loop raised")));
    } else {
      EXPECT_THAT(exporter->Save(2, buffers), IsError(ErrorCode::kIo, AllOf(HasSubstr("the loop raised"), HasSubstr("on rank 1"))));
    }
    ASSERT_THAT(comm->AllGather(""), IsOk());
    // Something that no save may remove lies where rank 0 makes its directory.
    if (rank == 0) {
      EXPECT_EQ(ReadTree(dir_ + "/online"), before);
      fs::create_directories(dir_ + "/home");
      std::ofstream(dir_ + "/home/diary.txt") << "dear diary";
    }
    ASSERT_THAT(comm->AllGather(""), IsOk());
    ExportOptions wrong = options;
    wrong.dst = dir_ + "/home";
    ASSERT_OK_AND_ASSIGN(const auto second, Exporter::Make(wrong, comm));
    EXPECT_THAT(second->Validate(), IsError(ErrorCode::kUsage, HasSubstr("on rank 0")));
    EXPECT_THAT(second->Save(3, buffers), IsError(ErrorCode::kUsage, AllOf(HasSubstr("making the staging directory on rank 0"))));
    EXPECT_THAT(exporter->Save(4, buffers), IsOk());
  });
  for (const auto& entry : fs::directory_iterator(dir_)) EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  EXPECT_EQ(Slurp(dir_ + "/home/diary.txt"), "dear diary");
}

TEST_F(LiveSaveTest, RanksThatMeanDifferentThingsAreTold) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    const std::vector<LiveBuffer>& buffers = ranks_[static_cast<std::size_t>(rank)].buffers;
    ExportOptions options = Options(rank);
    if (rank == 1) options.dtype = "fp32";
    ASSERT_OK_AND_ASSIGN(const auto types, Exporter::Make(options, comm));
    EXPECT_THAT(types->Save(1, buffers), IsError(ErrorCode::kUsage, HasSubstr("do not agree on the plan")));
    ASSERT_OK_AND_ASSIGN(const auto steps, Exporter::Make(Options(rank), comm));
    EXPECT_THAT(steps->Save(rank, buffers), IsError(ErrorCode::kUsage, HasSubstr("different targets")));
    ExportOptions twice = Options(rank);
    twice.place = {};
    ASSERT_OK_AND_ASSIGN(const auto places, Exporter::Make(twice, comm));
    EXPECT_THAT(places->Save(1, buffers), IsError(ErrorCode::kUsage, HasSubstr("no rank holds")));
  });
  EXPECT_FALSE(fs::exists(dir_ + "/online"));
}

/// What the run itself wrote is no earlier save, whatever the template makes of a step.
TEST_F(LiveSaveTest, NeverReplacesTheRunsOwnCheckpoint) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(1, 1), 1);
  ASSERT_TRUE(fs::exists(tree_ + "/latest_checkpointed_iteration.txt"));
  std::string own;
  for (const auto& entry : fs::directory_iterator(tree_)) {
    if (entry.is_directory()) own = entry.path().string();
  }
  const Tree before = ReadTree(tree_);
  const std::shared_ptr<Comm> solo = MakeSoloComm();
  for (const auto& [dst, overwrite, text] : {std::tuple{tree_, false, "the run's own checkpoints"}, {own, true, "is none"}, {tree_ + "/iter_{step:07d}", false, "the run's own checkpoints"}}) {
    ExportOptions options = Options(0);
    options.dst = dst;
    options.overwrite = overwrite;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, solo));
    EXPECT_THAT(exporter->Validate(), IsError(ErrorCode::kUsage, HasSubstr(text))) << dst;
    EXPECT_THAT(exporter->Save(9, ranks_[0].buffers), IsError(ErrorCode::kUsage, HasSubstr(text))) << dst;
    EXPECT_EQ(ReadTree(tree_), before);
  }
  ExportOptions beside = Options(0);
  beside.dst = tree_ + "/hf_{step}";
  ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(beside, solo));
  EXPECT_THAT(exporter->Validate(), IsOk());
  for (int again = 0; again < 2; ++again) EXPECT_THAT(exporter->Save(9, ranks_[0].buffers), IsOk());
}

/// Nobody waits for a rank that threw, and the next save begins as if nothing had been.
TEST_F(LiveSaveTest, AnExceptionIsAnErrorOnAllRanks) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  /// Throws in the place of one call.
  struct Throwing : Comm {
    int rank() const override { return 0; }
    int size() const override { return 1; }
    Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
      if (left-- == 0) throw std::runtime_error("the connection raised");
      return std::vector{bytes};
    }
    int left = -1;
  };
  for (const bool snapshot : {false, true}) {
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      ExportOptions options = Options(rank);
      options.snapshot = snapshot;
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
      const std::vector<LiveBuffer>& buffers = ranks_[static_cast<std::size_t>(rank)].buffers;
      const auto save = [&](const Hooks& hooks) -> Status {
        CROSSDOCK_ASSIGN_OR_RETURN(const auto job, exporter->Save(1, buffers, hooks));
        CROSSDOCK_RETURN_IF_ERROR(job->Wait(60));
        return OkStatus();
      };
      for (const std::string phase : {"making the staging directory", "writing metadata"}) {
        Hooks hooks;
        hooks.on_progress = [&phase](const ProgressEvent& event) {
          if (event.phase == phase) throw std::runtime_error("the hook raised");
        };
        EXPECT_THAT(save(hooks), IsError(ErrorCode::kIo, AllOf(HasSubstr("the hook raised"), HasSubstr("on rank 0")))) << phase;
        ASSERT_THAT(comm->AllGather(""), IsOk());
      }
      EXPECT_FALSE(fs::exists(dir_ + "/online/step_001"));
      ASSERT_THAT(comm->AllGather(""), IsOk());
      EXPECT_THAT(save({}), IsOk());
    });
    for (const auto& entry : fs::directory_iterator(dir_ + "/online")) EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
    fs::remove_all(dir_ + "/online");
  }
  StartRun(Layout(1, 1), 1);
  for (const bool snapshot : {false, true}) {
    const auto comm = std::make_shared<Throwing>();
    ExportOptions options = Options(0);
    options.snapshot = snapshot;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
    ASSERT_THAT(exporter->Validate(), IsOk());
    comm->left = 3;  // the third one after "beginning": "measuring"
    const auto saved = exporter->Save(1, ranks_[0].buffers);
    const Status status = !saved ? Status(saved.error()) : (*saved)->Wait(60) ? OkStatus() : Status((*saved)->Wait(60).error());
    EXPECT_THAT(status, IsError(ErrorCode::kIo, HasSubstr("the connection raised")));
    EXPECT_TRUE(fs::is_empty(dir_ + "/online")) << "the staging directory is gone";
    ASSERT_OK_AND_ASSIGN(const auto job, exporter->Save(1, ranks_[0].buffers));
    EXPECT_THAT(job->Wait(std::numeric_limits<double>::infinity()), IsOk());
    EXPECT_THAT(job->Wait(std::nan("")), IsError(ErrorCode::kUsage, HasSubstr("NaN")));
    fs::remove_all(dir_ + "/online");
  }
}

/// One type stands in the file, so all that hold a tensor must have it in that.
TEST_F(LiveSaveTest, ReplicasOfDifferentTypesAreToldAndForgotten) {
  WriteReference(kDense, "F32", false);
  StartRun(Layout(1, 1), 2);
  const std::vector<RunningRank> wide = ranks_;
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(1, 1), 2);
  Offline(Options(0));
  for (const bool snapshot : {true, false}) {
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      const auto self = static_cast<std::size_t>(rank);
      ExportOptions options = Options(rank);
      options.snapshot = snapshot;
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(options, comm));
      for (const int odd : {0, 1}) {
        const std::vector<LiveBuffer>& buffers = rank == odd ? wide[self].buffers : ranks_[self].buffers;
        EXPECT_THAT(exporter->Save(1, buffers), IsError(ErrorCode::kUsage, AllOf(HasSubstr("ranks 0 and 1"), HasSubstr("different types"), HasSubstr("weight"))));
      }
      std::vector<LiveBuffer> narrow = ranks_[self].buffers;
      narrow[0].dtype = "F8_E4M3";
      narrow[0].bytes /= 2;
      EXPECT_THAT(exporter->Save(1, narrow), IsError(ErrorCode::kUsage, HasSubstr("unknown type")));
      ASSERT_THAT(exporter->Save(1, ranks_[self].buffers), IsOk());
      ASSERT_THAT(exporter->Flush(60), IsOk());
    });
    ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
    fs::remove_all(dir_ + "/online");
  }
}

/// A call that fails on one rank alone, in whichever step: the ranks find each other again, with the types that they have.
TEST_F(LiveSaveTest, RanksComeTogetherAgainAfterAnAnswerWasLost) {
  WriteReference(kDense, "F32", false);
  StartRun(Layout(1, 1), 2);
  /// Everybody else has the answer.
  struct Losing : Comm {
    Losing(std::shared_ptr<Comm> living, int call) : inner(std::move(living)), left(call) {}
    int rank() const override { return inner->rank(); }
    int size() const override { return inner->size(); }
    Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
      auto all = inner->AllGather(bytes);
      if (left-- == 0) return MakeError(ErrorCode::kIo, "the answer was lost");
      return all;
    }
    std::shared_ptr<Comm> inner;
    int left;
  };
  const std::vector<RunningRank> wide = ranks_;
  WriteReference(kDense, "BF16", false);  // so that all plan again
  Offline(Options(0));
  for (int call = 0; call < 9; ++call) {
    OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
      const std::shared_ptr<Comm> used = rank == 1 ? std::make_shared<Losing>(comm, call) : comm;
      ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(rank), used));
      const std::vector<LiveBuffer>& buffers = wide[static_cast<std::size_t>(rank)].buffers;
      if (rank == 1) {
        EXPECT_THAT(exporter->Save(1, buffers), IsError(ErrorCode::kIo, HasSubstr("lost"))) << call;
      }
      EXPECT_THAT(exporter->Save(1, buffers), IsError(ErrorCode::kUsage, HasSubstr("different steps"))) << call;
      EXPECT_THAT(exporter->Save(1, buffers), IsOk()) << call;
    }, 20);
    ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
    fs::remove_all(dir_ + "/online");
  }
}

TEST_F(LiveSaveTest, ALostRankEndsTheSaveAndTheNextOneClearsUp) {
  WriteReference(kDense, "BF16", false);
  StartRun(Layout(2, 1), 2);
  /// Dies, as far as the others can tell, when it has seen the staging directory.
  struct Dying : Comm {
    explicit Dying(std::shared_ptr<Comm> living) : inner(std::move(living)) {}
    int rank() const override { return inner->rank(); }
    int size() const override { return inner->size(); }
    Result<std::vector<std::string>> AllGather(const std::string& bytes) override {
      if (left-- > 0) return inner->AllGather(bytes);
      return MakeError(ErrorCode::kCancelled, "dead");
    }
    std::shared_ptr<Comm> inner;
    int left = 6;
  };
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    std::shared_ptr<Comm> used = rank == 1 ? std::make_shared<Dying>(comm) : comm;
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(rank), used));
    const auto saved = exporter->Save(1, ranks_[static_cast<std::size_t>(rank)].buffers);
    if (rank == 0) {
      EXPECT_THAT(saved, IsError(ErrorCode::kIo, HasSubstr("ranks 1 did not come")));
      EXPECT_FALSE(fs::exists(dir_ + "/online/step_001"));
    } else {
      EXPECT_THAT(saved, IsError(ErrorCode::kCancelled, HasSubstr("dead")));
    }
  }, 10.0);
  // What a save that was killed leaves is in nobody's way.
  fs::create_directories(dir_ + "/online/.step_001.crossdock-partial");
  std::ofstream(dir_ + "/online/.step_001.crossdock-partial/model.safetensors") << "half";
  Offline(Options(0));
  OnAllRanks([&](int rank, std::shared_ptr<Comm> comm) {
    ASSERT_OK_AND_ASSIGN(const auto exporter, Exporter::Make(Options(rank), comm));
    ASSERT_THAT(exporter->Save(1, ranks_[static_cast<std::size_t>(rank)].buffers), IsOk());
  });
  ExpectSameTree(dir_ + "/online/step_001", dir_ + "/offline");
  EXPECT_FALSE(fs::exists(dir_ + "/online/.step_001.crossdock-partial"));
}

TEST(ExportPath, FillsTheTemplate) {
  EXPECT_EQ(*ExportPath("/o/{step}", false, 42), "/o/42");
  EXPECT_EQ(*ExportPath("/o/a{rollout_id:07d}b", false, 42), "/o/a0000042b");
  EXPECT_EQ(*ExportPath("/o/{{x}}/{step:3}", false, 7), "/o/{x}/  7");
  EXPECT_EQ(*ExportPath("/o/hf", false, 7), "/o/hf/iter_0000007");
  EXPECT_EQ(*ExportPath("/o/hf", true, 7), "/o/hf");
  for (const char* wrong : {"/o/{epoch}", "/o/{step", "/o/{step:x}", "/o/{}", "/o/{step!r}", ""}) {
    EXPECT_THAT(ExportPath(wrong, true, 1), IsError(ErrorCode::kUsage, HasSubstr("target"))) << wrong;
  }
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
