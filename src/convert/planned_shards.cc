// SPDX-License-Identifier: Apache-2.0
#include "convert/planned_shards.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/checked_math.h"
#include "dialects/hf/quantized.h"
#include "family/bind.h"
#include "family/detect.h"
#include "fmt/format.h"
#include "formats/safetensors/index.h"

namespace crossdock::convert {
namespace {

constexpr std::string_view kScaleOfBlocks = "_scale_inv";

struct Planned {
  DType dtype = DType::kBF16;
  Shape shape;
};

/// Every tensor that the family has, by its hub name.
Result<std::map<std::string, Planned>> TensorsOf(const family::FamilyFile& family, const family::ModelConfig& config, DType dtype) {
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Model model, family::EvaluateModel(family, config));
  family::BindOptions bind;
  bind.dialect = "hf";
  CROSSDOCK_ASSIGN_OR_RETURN(family::Binding binding, family::Bind(family, model, bind));
  std::map<std::string, Planned> tensors;
  for (family::HubTensor& tensor : binding.hub) {
    const DType own = family::FitsAny(family.f32_islands, tensor.name) ? DType::kF32 : dtype;
    tensors.emplace(std::move(tensor.name), Planned{own, std::move(tensor.shape)});
  }
  return tensors;
}

/// What the index says of FP8: a weight with scales beside it is FP8, its scales count its blocks.
void TakeScales(const formats::safetensors::Index& index, const expr::BlockFormat& block, std::map<std::string, Planned>* tensors) {
  for (const formats::safetensors::Index::Item& item : index.items) {
    if (!item.name.ends_with(kScaleOfBlocks)) continue;
    const auto weight = tensors->find(item.name.substr(0, item.name.size() - kScaleOfBlocks.size()));
    if (weight == tensors->end() || weight->second.shape.size() != 2) continue;
    weight->second.dtype = DType::kF8E4M3;
    const Shape& shape = weight->second.shape;
    tensors->emplace(item.name, Planned{DType::kF32, {CeilDiv(shape[0], block.rows), CeilDiv(shape[1], block.cols)}});
  }
}

/// The beginning of each file as the format has it: a length of 8 bytes and a JSON object.
Status LayOver(const std::string& root, const formats::safetensors::Index& index, const std::map<std::string, Planned>& tensors, io::OverlayStorage* over) {
  std::vector<std::string> heads(index.files.size(), "{");
  std::vector<std::int64_t> sizes(index.files.size(), 0);
  for (const formats::safetensors::Index::Item& item : index.items) {
    const auto tensor = tensors.find(item.name);
    if (tensor == tensors.end()) {
      return MakeError(ErrorCode::kIncomplete, "the weight files are not there, and no rule of the family says this tensor's shape")
          .WithPath(root)
          .WithTensor(item.name)
          .WithHint("fetch the weight files");
    }
    const auto file = static_cast<std::size_t>(item.file);
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(tensor->second.dtype, tensor->second.shape));
    Value line = Value::MakeDict();
    ValueList shape;
    for (const std::int64_t extent : tensor->second.shape) shape.emplace_back(extent);
    line.Set("dtype", Value(DTypeName(tensor->second.dtype)));
    line.Set("shape", Value::MakeList(std::move(shape)));
    line.Set("data_offsets", Value::MakeList({Value(sizes[file]), Value(sizes[file] + bytes)}));
    heads[file] += fmt::format("{}{}:{}", heads[file].size() == 1 ? "" : ",", ToJson(Value(item.name), 0), ToJson(line, 0));
    sizes[file] += bytes;
  }
  for (std::size_t file = 0; file < heads.size(); ++file) {
    std::string head = heads[file] + "}";
    head.resize((head.size() + 7) / 8 * 8, ' ');
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>((head.size() >> (8 * i)) & 0xffU);
    bytes += head;
    const auto size = static_cast<std::int64_t>(bytes.size()) + sizes[file];
    over->Add(io::JoinPath(root, index.files[file]), std::move(bytes), size);
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<io::OverlayStorage>> OverPlannedShards(io::Storage& storage, const SourceRequest& request) {
  const std::string index_path = io::JoinPath(request.path, "model.safetensors.index.json");
  const std::string config_path = io::JoinPath(request.path, "config.json");
  if (!io::Exists(storage, index_path) || !io::Exists(storage, config_path)) return std::unique_ptr<io::OverlayStorage>();
  CROSSDOCK_ASSIGN_OR_RETURN(std::string text, io::ReadSmallFile(storage, index_path));
  CROSSDOCK_ASSIGN_OR_RETURN(const formats::safetensors::Index index, formats::safetensors::ParseIndex(std::move(text), index_path));
  const auto there = [&](const std::string& file) { return io::Exists(storage, io::JoinPath(request.path, file)); };
  if (index.files.empty() || std::any_of(index.files.begin(), index.files.end(), there)) return std::unique_ptr<io::OverlayStorage>();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string json, io::ReadSmallFile(storage, config_path));
  CROSSDOCK_ASSIGN_OR_RETURN(Value values, ParseJson(json));
  const family::ModelConfig config{"hf", std::move(values)};
  CROSSDOCK_ASSIGN_OR_RETURN(const dialects::hf::Quantization quantized, dialects::hf::ReadQuantization(config.values));
  Source named;
  named.storage = &storage;
  CROSSDOCK_ASSIGN_OR_RETURN(const family::FamilyFile* family, WantedFamily(request, &named));
  if (family == nullptr) {
    std::vector<const family::FamilyFile*> families;
    for (const family::FamilyFile& file : family::BuiltinFamilies()) families.push_back(&file);
    CROSSDOCK_ASSIGN_OR_RETURN(family, family::DetectByConfig(config, families));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(auto tensors, TensorsOf(*family, config, quantized.dtype));
  if (quantized.block) TakeScales(index, *quantized.block, &tensors);
  auto over = std::make_unique<io::OverlayStorage>(storage);
  CROSSDOCK_RETURN_IF_ERROR(LayOver(request.path, index, tensors, over.get()));
  return over;
}

}  // namespace crossdock::convert
