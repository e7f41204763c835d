// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_towers.h"

#include <array>
#include <charconv>
#include <utility>

#include "dialects/mcore/keys.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr std::array kTowerCuts = {
    std::pair<std::string_view, Cut>{".linear_qkv.weight", {0}},
    std::pair<std::string_view, Cut>{".linear_qkv.bias", {0}},
    std::pair<std::string_view, Cut>{".linear_proj.weight", {1}},
    std::pair<std::string_view, Cut>{".linear_fc1.weight", {0, true}},
    std::pair<std::string_view, Cut>{".linear_fc1.bias", {0, true}},
    std::pair<std::string_view, Cut>{".linear_fc2.weight", {1}},
    // Norms over all heads at once, not over each (InternViT-6B).
    std::pair<std::string_view, Cut>{".self_attention.q_layernorm.weight", {0}},
    std::pair<std::string_view, Cut>{".self_attention.k_layernorm.weight", {0}},
};

}  // namespace

std::optional<TowerBlock> FindTowerBlock(std::string_view module_name) {
  if (!IsVision(module_name)) return std::nullopt;
  for (const std::string_view list : {std::string_view(".layers."), std::string_view(".deepstack_merger_list.")}) {
    const std::size_t at = module_name.find(list);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = module_name.substr(at + list.size());
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{} || end == rest.data() + rest.size() || *end != '.' || number < 0) return std::nullopt;
    std::string key = fmt::format("{}{}", module_name.substr(0, at + list.size()), rest.substr(static_cast<std::size_t>(end - rest.data()) + 1));
    if (!IsStackOfTower(key)) return std::nullopt;
    return TowerBlock{std::move(key), number};
  }
  return std::nullopt;
}

bool RepeatsEmbedding(std::string_view key) { return key.starts_with("encoder_model.text_encoder."); }

std::optional<Cut> FindTowerCut(std::string_view key) {
  if (key.starts_with("visual.")) return std::nullopt;
  if (RepeatsEmbedding(key)) return Cut{0};
  for (const auto& [end, cut] : kTowerCuts) {
    if (key.ends_with(end)) return cut;
  }
  return std::nullopt;
}

Result<int> TowerRanks(const Shape& local_qkv, int decoder_ranks) {
  const std::int64_t rows = local_qkv.empty() ? 0 : local_qkv[0];
  const std::int64_t whole = local_qkv.size() == 2 ? 3 * local_qkv[1] : 0;
  if (rows > 0 && whole % rows == 0 && whole / rows >= 1 && decoder_ranks % (whole / rows) == 0) return static_cast<int>(whole / rows);
  return MakeError(ErrorCode::kCorrupt, "the query, key and value of a vision tower's block do not divide among the tensor-parallel ranks")
      .WithExpected(fmt::format("three times its columns in rows, divided by 1 to {}", decoder_ranks))
      .WithFound(ToString(local_qkv));
}

}  // namespace crossdock::dialects::mcore
