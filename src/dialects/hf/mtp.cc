// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/mtp.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "dialects/hf/config_patch.h"
#include "family/row_syntax.h"

namespace crossdock::dialects::hf {
namespace {

constexpr std::int64_t kMaxMtpLayers = 1024;

bool CountsTo(const family::Group& group, std::string_view letter) {
  return std::ranges::any_of(group.index, [&](const family::Group::IndexRange& range) { return range.last == letter; });
}

/// Rows of the prediction layers that a decoder layer does not have: the norms and the projection before it.
std::vector<std::string> OwnPatterns(const family::FamilyFile& family) {
  std::set<std::string> shared;
  for (const family::Group& group : family.groups) {
    if (CountsTo(group, kMtpLetter)) continue;
    for (const family::Row& row : group.rows) shared.insert(row.hub);
  }
  std::vector<std::string> patterns;
  for (const family::Group& group : family.groups) {
    if (!CountsTo(group, kMtpLetter) || group.index.size() != 1) continue;
    for (const family::Row& row : group.rows) {
      if (!shared.contains(row.hub)) patterns.push_back(group.hub_prefix + family::ExpandGroups(row.hub, 0));
    }
  }
  return patterns;
}

}  // namespace

std::int64_t CountMtpLayers(const family::FamilyFile& family, const family::Letters& letters, const std::function<bool(std::string_view)>& has) {
  if (!letters.contains(kMtpLetter)) return 0;
  const std::vector<std::string> patterns = OwnPatterns(family);
  std::int64_t count = 0;
  const auto there = [&](std::int64_t layer) {
    return std::ranges::any_of(patterns, [&](const std::string& pattern) {
      const std::string name = family::FillIndices(pattern, {{"i", layer}}, letters);
      // What stands before all prediction layers tells of the first one only.
      return (layer == 0 || name != family::FillIndices(pattern, {{"i", 0}}, letters)) && has(name);
    });
  };
  while (count < kMaxMtpLayers && there(count)) ++count;
  return count;
}

Status AgreeOnMtp(const family::FamilyFile& family, std::int64_t count, const std::string& where, family::ModelConfig* config, family::Model* model,
                  std::vector<std::string>* notices) {
  const auto letter = model->letters.find(kMtpLetter);
  if (letter == model->letters.end() || letter->second == count) return OkStatus();
  const auto& paths = family.letters.at(kMtpLetter).paths;
  const auto places = paths.find(config->words);
  if (places == paths.end()) return OkStatus();
  const std::string path = config->words == "hf" ? PathOfLetter(family, kMtpLetter, config->values) : places->second.front();
  notices->push_back(fmt::format("{} announces {} layers of multi-token prediction ({}), the checkpoint holds {}: {} is what the result says", where, letter->second,
                                 path, count, count));
  SetPath(&config->values, path, Value(count));
  letter->second = count;
  return OkStatus();
}

Status DropMtp(HubState* hub) {
  const auto letter = hub->model.letters.find(kMtpLetter);
  if (letter == hub->model.letters.end() || letter->second == 0) return OkStatus();
  const std::int64_t layers = letter->second;
  letter->second = 0;
  family::BindOptions options;
  options.dialect = "hf";
  CROSSDOCK_ASSIGN_OR_RETURN(const family::Binding rest, family::Bind(*hub->family, hub->model, options));
  std::set<std::string_view> kept;
  for (const family::HubTensor& tensor : rest.hub) kept.insert(tensor.name);
  LeftOut left{fmt::format("{} {} of multi-token prediction", layers, layers == 1 ? "layer" : "layers"), "left behind by --mtp drop", 0, 0};
  std::erase_if(hub->tensors, [&](const HubTensor& tensor) {
    if (kept.contains(tensor.name)) return false;
    const auto bytes = ByteSize(tensor.dtype, tensor.shape);
    left.bytes += bytes ? *bytes : 0;
    ++left.count;
    return true;
  });
  std::erase_if(hub->order, [&](const std::string& name) { return !kept.contains(name); });
  hub->copies.clear();
  hub->left_out.push_back(std::move(left));
  const auto paths = hub->family->letters.at(kMtpLetter).paths.find(hub->config.words);
  if (paths != hub->family->letters.at(kMtpLetter).paths.end()) {
    for (const std::string& path : paths->second) {
      if (hub->config.values.FindPath(path) != nullptr) SetPath(&hub->config.values, path, Value(0));
    }
  }
  return OkStatus();
}

}  // namespace crossdock::dialects::hf
