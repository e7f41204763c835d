// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/cut_table.h"

#include <algorithm>
#include <array>
#include <utility>

namespace crossdock::dialects::mcore {
namespace {

constexpr std::array kCuts = {
    std::pair<std::string_view, Cut>{"self_attention.linear_qkv.weight", {0}},
    std::pair<std::string_view, Cut>{"self_attention.linear_qkv.bias", {0}},
    std::pair<std::string_view, Cut>{"self_attention.linear_proj.weight", {1}},
    std::pair<std::string_view, Cut>{"mlp.linear_fc1.weight", {0, true}},
    std::pair<std::string_view, Cut>{"mlp.linear_fc1.bias", {0, true}},
    std::pair<std::string_view, Cut>{"mlp.linear_fc1.weight_w", {0}},
    std::pair<std::string_view, Cut>{"mlp.linear_fc1.weight_v", {0}},
    std::pair<std::string_view, Cut>{"mlp.linear_fc2.weight", {1}},
    std::pair<std::string_view, Cut>{"embedding.word_embeddings.weight", {0}},
    std::pair<std::string_view, Cut>{"output_layer.weight", {0}},
    std::pair<std::string_view, Cut>{"output_layer.bias", {0}},
    std::pair<std::string_view, Cut>{"self_attention.core_attention.softmax_offset", {0}},
    std::pair<std::string_view, Cut>{"self_attention.linear_q_proj.weight", {0}},
    std::pair<std::string_view, Cut>{"self_attention.linear_q_up_proj.weight", {0}},
    std::pair<std::string_view, Cut>{"self_attention.linear_kv_up_proj.weight", {0}},
    std::pair<std::string_view, Cut>{"mlp.experts.experts.linear_fc1.weight", {1, true, true}},
    std::pair<std::string_view, Cut>{"mlp.experts.experts.linear_fc2.weight", {2, false, true}},
    std::pair<std::string_view, Cut>{"mlp.experts.experts.linear_fc1.bias", {1, true, true}},
    std::pair<std::string_view, Cut>{"mlp.experts.experts.linear_fc2.bias", {0, false, true}},
    std::pair<std::string_view, Cut>{".eh_proj.weight", {0}},
    std::pair<std::string_view, Cut>{"self_attention.in_proj.weight.query", {0}},
    std::pair<std::string_view, Cut>{"self_attention.in_proj.weight.key", {0}},
    std::pair<std::string_view, Cut>{"self_attention.in_proj.weight.value", {0}},
    std::pair<std::string_view, Cut>{"self_attention.in_proj.weight.z", {0}},
    std::pair<std::string_view, Cut>{"self_attention.in_proj.weight.beta", {0}},
    std::pair<std::string_view, Cut>{"self_attention.in_proj.weight.alpha", {0}},
    std::pair<std::string_view, Cut>{"self_attention.conv1d.weight.query", {0}},
    std::pair<std::string_view, Cut>{"self_attention.conv1d.weight.key", {0}},
    std::pair<std::string_view, Cut>{"self_attention.conv1d.weight.value", {0}},
    std::pair<std::string_view, Cut>{"self_attention.A_log", {0}},
    std::pair<std::string_view, Cut>{"self_attention.dt_bias", {0}},
    std::pair<std::string_view, Cut>{"self_attention.out_proj.weight", {1}},
    std::pair<std::string_view, Cut>{"mlp.shared_experts.linear_fc1.weight", {0, true}},
    std::pair<std::string_view, Cut>{"mlp.shared_experts.linear_fc2.weight", {1}},
};

Error Unfitting(const Shape& first, const Shape& other) {
  return MakeError(ErrorCode::kCorrupt, "the parts of a tensor that tensor-parallel ranks hold do not fit together")
      .WithExpected("as on rank 0, " + ToString(first))
      .WithFound(ToString(other));
}

}  // namespace

std::optional<Cut> FindCut(std::string_view model_key) {
  const auto row = std::ranges::find_if(kCuts, [&](const auto& c) { return model_key.ends_with(c.first); });
  return row == kCuts.end() ? std::nullopt : std::optional<Cut>(row->second);
}

bool IsReplicated(std::string_view model_key) {
  if (FindCut(model_key)) return false;
  constexpr std::array<std::string_view, 10> kEnds = {
      "norm.weight", "norm.bias", "layer_norm_weight", "layer_norm_bias", "linear_proj.bias", "linear_fc2.bias",
      "linear_q_down_proj.weight", "linear_kv_down_proj.weight", "position_embeddings.weight", "gate_weight"};
  return model_key.find("mlp.router.") != std::string_view::npos ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return model_key.ends_with(end); });
}

Result<expr::Expr> JoinRanks(const std::vector<expr::Expr>& parts, const std::optional<Cut>& cut, bool gated) {
  const Shape& first = parts.front()->shape;
  for (const expr::Expr& part : parts) {
    const bool fits = part->dtype == parts.front()->dtype && part->shape == first;  // Megatron cuts evenly
    if (!fits) return Unfitting(first, part->shape);
  }
  if (!cut || parts.size() == 1) return parts.front();
  const auto axis = static_cast<std::size_t>(cut->axis);
  if (first.size() <= axis) return Unfitting(first, first);
  if (!cut->halves || !gated) return expr::Concat(parts, cut->axis);
  if (first[axis] % 2 != 0) {
    return MakeError(ErrorCode::kCorrupt, "a gated MLP's rows on one rank are not two halves").WithFound(ToString(first));
  }
  std::vector<expr::Expr> halves;
  for (const std::int64_t half : {0, 1}) {
    for (const expr::Expr& part : parts) {
      Box box = Box::Whole(first);
      box.sizes[axis] = first[axis] / 2;
      box.offsets[axis] = half * box.sizes[axis];
      CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr rows, expr::Slice(part, std::move(box)));
      halves.push_back(std::move(rows));
    }
  }
  return expr::Concat(std::move(halves), cut->axis);
}

}  // namespace crossdock::dialects::mcore
