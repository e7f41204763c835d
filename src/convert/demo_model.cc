// SPDX-License-Identifier: Apache-2.0
#include "convert/demo_model.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/endian.h"
#include "kernels/cast.h"

namespace crossdock::convert {
namespace {

constexpr std::int64_t kVocab = 1000, kHidden = 64, kFfn = 160, kLayers = 4, kHeads = 4, kGroups = 2, kHeadDim = 16;
constexpr std::int64_t kStep = 20, kSamples = 160;
constexpr const char* kDataFile = "demo/data";

/// SplitMix64: a few lines, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  /// Nearly normal with variance 1/3: the sum of four uniform numbers, in exact arithmetic.
  float Bell() {
    const std::uint64_t bits = Next();
    std::int64_t sum = 0;
    for (unsigned i = 0; i < 4; ++i) sum += static_cast<std::int64_t>((bits >> (16U * i)) & 0xffffU);
    return static_cast<float>(sum - 131070) / 65536.0F;
  }
  float Uniform() { return static_cast<float>(Next() >> 40U) / 16777216.0F; }

 private:
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t state_;
};

struct Parameter {
  std::string name;
  Shape shape;
  float scale = 0.02F;
  float center = 0;
};

std::vector<Parameter> Parameters() {
  std::vector<Parameter> out = {{"model.embed_tokens.weight", {kVocab, kHidden}}, {"model.norm.weight", {kHidden}, 0.05F, 1.0F},
                                {"lm_head.weight", {kVocab, kHidden}}};
  for (std::int64_t l = 0; l < kLayers; ++l) {
    const std::string at = fmt::format("model.layers.{}.", l);
    out.push_back({at + "input_layernorm.weight", {kHidden}, 0.05F, 1.0F});
    out.push_back({at + "post_attention_layernorm.weight", {kHidden}, 0.05F, 1.0F});
    out.push_back({at + "self_attn.q_norm.weight", {kHeadDim}, 0.05F, 1.0F});
    out.push_back({at + "self_attn.k_norm.weight", {kHeadDim}, 0.05F, 1.0F});
    out.push_back({at + "self_attn.q_proj.weight", {kHeads * kHeadDim, kHidden}});
    out.push_back({at + "self_attn.k_proj.weight", {kGroups * kHeadDim, kHidden}});
    out.push_back({at + "self_attn.v_proj.weight", {kGroups * kHeadDim, kHidden}});
    out.push_back({at + "self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}});
    out.push_back({at + "mlp.gate_proj.weight", {kFfn, kHidden}});
    out.push_back({at + "mlp.up_proj.weight", {kFfn, kHidden}});
    out.push_back({at + "mlp.down_proj.weight", {kHidden, kFfn}});
  }
  return out;
}

Value ConfigJson() {
  Value c = Value::MakeDict();
  Value architectures = Value::MakeList({Value("Qwen3ForCausalLM")});
  c.Set("architectures", std::move(architectures));
  c.Set("attention_bias", false);
  c.Set("attention_dropout", 0.0);
  c.Set("bos_token_id", 1);
  c.Set("dtype", "bfloat16");
  c.Set("eos_token_id", 2);
  c.Set("head_dim", kHeadDim);
  c.Set("hidden_act", "silu");
  c.Set("hidden_size", kHidden);
  c.Set("initializer_range", 0.02);
  c.Set("intermediate_size", kFfn);
  c.Set("max_position_embeddings", 256);
  c.Set("max_window_layers", kLayers);
  c.Set("model_type", "qwen3");
  c.Set("num_attention_heads", kHeads);
  c.Set("num_hidden_layers", kLayers);
  c.Set("num_key_value_heads", kGroups);
  c.Set("pad_token_id", Value());
  c.Set("rms_norm_eps", 1e-6);
  c.Set("rope_scaling", Value());
  c.Set("rope_theta", 1000000.0);
  c.Set("sliding_window", Value());
  c.Set("tie_word_embeddings", false);
  c.Set("torch_dtype", "bfloat16");
  c.Set("use_cache", true);
  c.Set("use_sliding_window", false);
  c.Set("vocab_size", kVocab);
  return c;
}

std::string TokenWord(std::int64_t id) {
  constexpr std::array kSpecial = {"<unk>", "<s>", "</s>"};
  return id < 3 ? kSpecial[static_cast<std::size_t>(id)] : fmt::format("w{}", id);
}

/// A word-level tokenizer in the form of the `tokenizers` library: whitespace between words w3, w4, ...
Value TokenizerJson() {
  Value added = Value::MakeList();
  for (std::int64_t id = 0; id < 3; ++id) {
    Value token = Value::MakeDict();
    token.Set("id", id);
    token.Set("content", TokenWord(id));
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token.Set(flag, false);
    token.Set("special", true);
    added.mutable_sequence()->push_back(std::move(token));
  }
  Value vocabulary = Value::MakeDict();
  for (std::int64_t id = 0; id < kVocab; ++id) vocabulary.as_dict()->items.emplace_back(TokenWord(id), Value(id));
  Value model = Value::MakeDict();
  model.Set("type", "WordLevel");
  model.Set("vocab", std::move(vocabulary));
  model.Set("unk_token", "<unk>");
  Value whitespace = Value::MakeDict();
  whitespace.Set("type", "Whitespace");
  Value out = Value::MakeDict();
  out.Set("version", "1.0");
  out.Set("truncation", Value());
  out.Set("padding", Value());
  out.Set("added_tokens", std::move(added));
  out.Set("normalizer", Value());
  out.Set("pre_tokenizer", std::move(whitespace));
  out.Set("post_processor", Value());
  out.Set("decoder", Value());
  out.Set("model", std::move(model));
  return out;
}

SideFile JsonFile(const char* path, const Value& value) {
  SideFile file;
  file.path = path;
  file.bytes = ToJson(value) + "\n";
  file.size = static_cast<std::int64_t>(file.bytes->size());
  return file;
}

std::vector<SideFile> SideFiles() {
  Value generation = Value::MakeDict();
  generation.Set("bos_token_id", 1);
  generation.Set("eos_token_id", 2);
  generation.Set("max_new_tokens", 16);
  Value tokenizer = Value::MakeDict();
  tokenizer.Set("bos_token", "<s>");
  tokenizer.Set("eos_token", "</s>");
  tokenizer.Set("unk_token", "<unk>");
  tokenizer.Set("model_max_length", 256);
  tokenizer.Set("tokenizer_class", "PreTrainedTokenizerFast");
  return {JsonFile("generation_config.json", generation), JsonFile("tokenizer.json", TokenizerJson()),
          JsonFile("tokenizer_config.json", tokenizer)};
}

/// The tensors of one parameter, appended to the data and the catalog.
class Maker {
 public:
  Maker(Catalog* catalog, std::string* data) : catalog_(catalog), data_(data) {}

  void Add(const Parameter& p) {
    Random random(0x5eed0000U + static_cast<std::uint64_t>(catalog_->entries.size()));
    const std::int64_t count = CheckedCount(p.shape);
    std::string weight, master, mu, nu;
    for (std::int64_t i = 0; i < count; ++i) {
      const float drawn = p.center + random.Bell() * p.scale;
      std::array<std::byte, 2> narrow{};
      kernels::StoreFromDouble(drawn, narrow.data(), DType::kBF16);
      const auto bits = LoadLittle<std::uint16_t>(narrow.data());
      weight.append(reinterpret_cast<const char*>(narrow.data()), narrow.size());
      // The lower half of the float: up to a quarter of the bf16 place, so the sum rounds back.
      const auto remainder = static_cast<std::uint32_t>(random.Uniform() * 16384.0F);
      AppendFloat(&master, std::bit_cast<float>((static_cast<std::uint32_t>(bits) << 16U) | remainder));
      const float gradient = random.Bell() * 0.001F;
      AppendFloat(&mu, gradient);
      AppendFloat(&nu, gradient * gradient + 1e-9F);
    }
    Put("param/" + p.name, DType::kBF16, p.shape, weight);
    Put("optim/master/" + p.name, DType::kF32, p.shape, master);
    Put("optim/adam_mu/" + p.name, DType::kF32, p.shape, mu);
    Put("optim/adam_nu/" + p.name, DType::kF32, p.shape, nu);
  }

 private:
  static void AppendFloat(std::string* out, float value) {
    std::array<char, 4> bytes{};
    std::memcpy(bytes.data(), &value, bytes.size());
    out->append(bytes.data(), bytes.size());
  }

  void Put(std::string name, DType dtype, const Shape& shape, const std::string& bytes) {
    Entry entry;
    entry.name = std::move(name);
    entry.dtype = dtype;
    entry.shape = shape;
    const ByteRange range{static_cast<std::int64_t>(data_->size()), static_cast<std::int64_t>(bytes.size())};
    entry.chunks.push_back({Box::Whole(shape), 0, range, ChunkEncoding::kRaw, 0});
    *data_ += bytes;
    catalog_->entries.push_back(std::move(entry));
  }

  Catalog* catalog_;
  std::string* data_;
};

class DemoReader final : public formats::CheckpointReader {
 public:
  explicit DemoReader(Catalog catalog) : catalog_(std::move(catalog)) {}
  [[nodiscard]] const Catalog& catalog() const override { return catalog_; }
  [[nodiscard]] Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    return catalog_.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)].bytes;
  }
  [[nodiscard]] Result<Value> LoadObject(const ObjectRef&) const override {
    return MakeError(ErrorCode::kUnsupported, "the demo model holds no objects");
  }

 private:
  Catalog catalog_;
};

Value Metadata() {
  Value metadata = Value::MakeDict();
  metadata.Set("format", "crossdock-full-state-v1");
  metadata.Set("model_name", "qwen3");
  metadata.Set("optimizer", "adam");
  metadata.Set("step", std::to_string(kStep));
  metadata.Set("consumed_train_samples", std::to_string(kSamples));
  // What a Megatron checkpoint with Adam state must store, so that no --set is needed.
  metadata.Set("crossdock_extras", R"({"words": "mcore", "values": {"args": {"lr": 0.001, "min_lr": 1e-05, "weight_decay": 0.1}}})");
  return metadata;
}

}  // namespace

Result<DemoModel> MakeDemoModel() {
  DemoModel model;
  model.storage = std::make_unique<io::MemoryStorage>();
  Catalog catalog;
  catalog.format = "safetensors";
  catalog.root = "demo";
  std::string data;
  Maker maker(&catalog, &data);
  for (const Parameter& p : Parameters()) maker.Add(p);
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(*model.storage, "demo"));
  CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(*model.storage, kDataFile, data));
  CROSSDOCK_ASSIGN_OR_RETURN(const io::FileInfo info, model.storage->Stat(kDataFile));
  catalog.files.push_back({"data", {info.size, info.mtime_ns, info.inode}});
  catalog.SortEntries();
  catalog.objects["config.json"] = ConfigJson();
  catalog.objects["__metadata__"] = Metadata();
  Value meta = Value::MakeDict();
  meta.Set("meta/step", kStep);
  meta.Set("meta/adam_count", kStep);
  catalog.objects["meta"] = std::move(meta);
  catalog.side_files = SideFiles();

  Source& source = model.source;
  source.label = "demo";
  source.storage = model.storage.get();
  source.found.kind = formats::Kind::kFullState;
  source.found.path = "a seed";
  source.reader = std::make_unique<DemoReader>(std::move(catalog));
  CROSSDOCK_RETURN_IF_ERROR(ReadSourceHub({}, &source));
  return model;
}

}  // namespace crossdock::convert
