// SPDX-License-Identifier: Apache-2.0
#include "convert/planned_shards.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/checked_math.h"
#include "dialects/hf/quantized.h"
#include "dialects/hf/spelling.h"
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

/// Names alone leave open whether matrices are transposed in a file, which changes no size: the first spelling that has the names.
dialects::hf::Spellings AnySpelling(const family::FamilyFile& family, const family::Model& model, const std::vector<std::string>& names) {
  for (const auto& [spelling, rows] : family.spellings) {
    family::BindOptions bind;
    bind.dialect = "hf";
    bind.spellings = {spelling};
    const Result<family::Binding> binding = family::Bind(family, model, bind);
    if (!binding) continue;
    std::set<std::string_view> bound;
    for (const family::DialectTensor& tensor : binding->tensors) bound.insert(tensor.name);
    if (std::ranges::all_of(names, [&](const std::string& name) { return bound.contains(name); })) return {spelling};
  }
  return family.released.empty() ? dialects::hf::Spellings() : dialects::hf::Spellings{family.released};
}

/// Every tensor that the family has, in the spelling of the index; where names leave that open, as released. Copies of another
/// tensor (the embedding and the head beside a layer of multi-token prediction) are as large as that.
Result<std::map<std::string, Planned>> TensorsOf(const family::FamilyFile& family, const family::ModelConfig& config, const formats::safetensors::Index& index, DType dtype) {
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Model model, family::EvaluateModel(family, config));
  std::vector<std::string> names;
  for (const formats::safetensors::Index::Item& item : index.items) names.push_back(item.name);
  const auto no_shapes = [](std::string_view) -> const Shape* { return nullptr; };
  family::BindOptions bind;
  bind.dialect = "hf";
  const Result<dialects::hf::Spellings> spelled = dialects::hf::SpellingOfNames(family, model, names, no_shapes, "the index");
  bind.spellings = spelled ? *spelled : AnySpelling(family, model, names);
  CROSSDOCK_ASSIGN_OR_RETURN(family::Binding binding, family::Bind(family, model, bind));
  std::map<std::string, Planned> tensors;
  for (family::DialectTensor& tensor : binding.tensors) {
    const bool island = std::ranges::any_of(tensor.hub, [&](std::int32_t part) { return family::FitsAny(family.f32_islands, binding.hub[static_cast<std::size_t>(part)].name); });
    tensors.emplace(std::move(tensor.name), Planned{island ? DType::kF32 : dtype, std::move(tensor.shape)});
  }
  for (const family::HubCopy& copy : binding.copies) {
    const auto original = tensors.find(family::SpelledName(family, bind.spellings, copy.of));
    if (original != tensors.end()) tensors.emplace(family::SpelledName(family, bind.spellings, copy.name), original->second);
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
  CROSSDOCK_ASSIGN_OR_RETURN(auto tensors, TensorsOf(*family, config, index, quantized.dtype));
  if (quantized.block) TakeScales(index, *quantized.block, &tensors);
  auto over = std::make_unique<io::OverlayStorage>(storage);
  CROSSDOCK_RETURN_IF_ERROR(LayOver(request.path, index, tensors, over.get()));
  return over;
}

}  // namespace crossdock::convert
