// SPDX-License-Identifier: Apache-2.0
#include "roundtrip/tiny_state.h"

#include <gtest/gtest.h>

#include <cstring>

#include "family/bind.h"
#include "family/detect.h"
#include "tensor/value.h"

namespace crossdock {
namespace {

Value ConfigOf(const family::FamilyFile& family, bool tied) {
  Value config = *ParseJson(R"({"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
    "intermediate_size": 24, "vocab_size": 50, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "max_position_embeddings": 64, "hidden_act": "silu",
    "torch_dtype": "bfloat16"})");
  config.Set("architectures", Value::MakeList({Value(family.architectures.front())}));
  config.Set("model_type", Value(family.model_type));
  config.Set("tie_word_embeddings", Value(tied));
  if (family.name == "qwen3_moe" || family.name == "mixtral") {
    for (const char* count : {"num_experts", "num_local_experts"}) config.Set(count, Value(std::int64_t{4}));
    config.Set("num_experts_per_tok", Value(std::int64_t{2}));
    config.Set("moe_intermediate_size", Value(std::int64_t{8}));
    config.Set("decoder_sparse_step", Value(std::int64_t{1}));
    config.Set("norm_topk_prob", Value(true));
  }
  return config;
}

template <typename T>
void Append(std::string* out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

/// Finite floats whose bits follow from tensor and place.
std::uint32_t Bits(std::uint32_t tensor, std::uint32_t slot, std::uint32_t i) {
  std::uint32_t h = tensor * 0x9e3779b1U + slot * 0x85ebca77U + i * 0xc2b2ae3dU;
  h ^= h >> 15U;
  h *= 0x2c1b3c6dU;
  h ^= h >> 12U;
  return (h & 0x807fffffU) | ((100U + (h >> 28U)) << 23U);  // exponents from 2^-27 to 2^-12
}

class Writer {
 public:
  void Add(const std::string& name, const char* dtype, const Shape& shape, const std::string& bytes) {
    header_ += header_.size() > 1 ? "," : "";
    header_ += "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[";
    for (std::size_t i = 0; i < shape.size(); ++i) header_ += (i > 0 ? "," : "") + std::to_string(shape[i]);
    header_ += "],\"data_offsets\":[" + std::to_string(data_.size()) + "," + std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
  }
  std::string Finish() {
    header_ += "}";
    while (header_.size() % 8 != 0) header_ += ' ';
    std::string file;
    Append(&file, static_cast<std::uint64_t>(header_.size()));
    return file + header_ + data_;
  }

 private:
  std::string header_ =
      R"({"__metadata__":{"format":"crossdock-full-state-v1","optimizer":"adam","step":"20","consumed_train_samples":"160",)"
      R"("crossdock_extras":"{\"words\": \"mcore\", \"values\": {\"args\": {\"lr\": 0.001, \"min_lr\": 1e-05, \"weight_decay\": 0.1}}}"})";
  std::string data_;
};

}  // namespace

Status WriteTinyState(io::Storage& storage, const std::string& dir, const TinyFamily& wanted) {
  std::vector<const family::FamilyFile*> all;
  for (const family::FamilyFile& one : family::BuiltinFamilies()) all.push_back(&one);
  const family::FamilyFile* family = family::FindFamily(wanted.family, all);
  if (family == nullptr) return MakeError(ErrorCode::kUsage, "no such family");
  const Value config = ConfigOf(*family, wanted.tied);
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Model model, family::EvaluateModel(*family, {"hf", config}));
  family::BindOptions options;
  options.dialect = "hf";
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding binding, family::Bind(*family, model, options));
  Writer writer;
  std::uint32_t number = 0;
  for (const family::HubTensor& tensor : binding.hub) {
    ++number;
    const auto count = static_cast<std::uint32_t>(CheckedCount(tensor.shape));
    std::string weight;
    std::string master;
    std::string mu;
    std::string nu;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t bits = Bits(number, 0, i);
      Append(&weight, static_cast<std::uint16_t>(bits >> 16U));
      Append(&master, (bits & 0xffff0000U) | (Bits(number, 1, i) & 0x3fffU));  // less than half a place of bf16
      Append(&mu, Bits(number, 2, i));
      Append(&nu, Bits(number, 3, i) & 0x7fffffffU);
    }
    writer.Add("param/" + tensor.name, "BF16", tensor.shape, weight);
    writer.Add("optim/master/" + tensor.name, "F32", tensor.shape, master);
    writer.Add("optim/adam_mu/" + tensor.name, "F32", tensor.shape, mu);
    writer.Add("optim/adam_nu/" + tensor.name, "F32", tensor.shape, nu);
  }
  std::string seven;
  Append(&seven, std::int64_t{7});
  writer.Add("meta/adam_count", "I64", {}, seven);
  writer.Add("meta/step", "I64", {}, std::string("\x14\0\0\0\0\0\0\0", 8));
  CROSSDOCK_RETURN_IF_ERROR(io::MakeDirs(storage, dir));
  CROSSDOCK_RETURN_IF_ERROR(io::WriteSmallFile(storage, dir + "/model.safetensors", writer.Finish()));
  return io::WriteSmallFile(storage, dir + "/config.json", ToJson(config));
}

std::map<std::string, std::string> ReadTensors(const std::map<std::string, std::string>& files) {
  std::map<std::string, std::string> tensors;
  for (const auto& [path, content] : files) {
    if (!path.ends_with(".safetensors")) continue;
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), sizeof length);
    const Result<Value> header = ParseJson(std::string_view(content).substr(8, length));
    EXPECT_TRUE(header.has_value()) << path;
    if (!header) continue;
    for (const auto& [key, item] : header->as_dict()->items) {
      if (*key.as_string() == "__metadata__") continue;
      const ValueList& range = *item.Find("data_offsets")->as_sequence();
      const auto begin = static_cast<std::size_t>(*range[0].as_int());
      const auto end = static_cast<std::size_t>(*range[1].as_int());
      tensors[*key.as_string()] = *item.GetString("dtype") + ToJson(*item.Find("shape"), 0) + content.substr(8 + length + begin, end - begin);
    }
  }
  return tensors;
}

}  // namespace crossdock
