// SPDX-License-Identifier: Apache-2.0
/// \file  A run of several ranks inside one test program: a model on disk, its tensors divided among threads as Megatron-Core divides them,
/// and what the command line makes of the same model, to compare with. A fixture derives from LiveRun.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
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
namespace fs = std::filesystem;

inline constexpr const char* kDense = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 8, "intermediate_size": 40, "vocab_size": 50, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": TIED, "attention_bias": false, "torch_dtype": "bfloat16"})";
inline constexpr const char* kMoe = R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "norm_topk_prob": true, "vocab_size": 50, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu", "max_position_embeddings": 64,
  "tie_word_embeddings": TIED, "attention_bias": false, "torch_dtype": "bfloat16"})";

/// Like DeepSeek-V3, with one layer of multi-token prediction.
inline constexpr const char* kPredicting = R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 4, "intermediate_size": 24, "moe_intermediate_size": 8, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
  "kv_lora_rank": 6, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 5, "vocab_size": 50, "num_nextn_predict_layers": 1, "n_group": 2, "topk_group": 1,
  "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "hidden_act": "silu",
  "max_position_embeddings": 64, "tie_word_embeddings": TIED, "attention_bias": false, "torch_dtype": "bfloat16"})";

using Tree = std::map<std::string, std::string>;

inline std::string Slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline Tree ReadTree(const std::string& dir) {
  Tree files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), dir).string()] = Slurp(entry.path());
  }
  return files;
}

inline void ExpectSameTree(const std::string& dir, const std::string& expected) {
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

class LiveRun : public ::testing::Test {
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

inline LayoutOptions Layout(int tp, int pp, int ep = 1, int etp = 0, int vpp = 1) {
  LayoutOptions layout;
  layout.tp = tp;
  layout.pp = pp;
  layout.ep = ep;
  layout.etp = etp;
  layout.vpp = vpp;
  return layout;
}

inline void Keep(ExportOptions* /*options*/) {}
inline void Narrow(ExportOptions* options) { options->dtype = "bf16"; }
inline void Small(ExportOptions* options) { options->max_shard_bytes = 20'000; }
inline void Blocks(ExportOptions* options) {
  options->fp8.strategy = "block";
  options->fp8.block = {16, 12};
}
inline void AlignedBlocks(ExportOptions* options) {
  options->fp8.strategy = "block";
  options->fp8.block = {8, 4};
}
inline void Channels(ExportOptions* options) { options->fp8.strategy = "channel"; }
inline void Tensors(ExportOptions* options) { options->fp8.strategy = "tensor"; }

}  // namespace crossdock
