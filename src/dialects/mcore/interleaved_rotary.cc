// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/interleaved_rotary.h"

#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

/// How many heads lie along the first axis of a tensor; 0 when rotary embeddings do not touch it.
std::int64_t HeadsOf(const std::string& name, std::int64_t heads, std::int64_t groups) {
  const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (is(".self_attn.q_proj.")) return heads;
  if (is(".self_attn.k_proj.")) return groups;
  return is(".self_attn.q_norm.") || is(".self_attn.k_norm.") ? 1 : 0;
}

Result<expr::Expr> EvenRowsFirst(expr::Expr in, std::int64_t heads) {
  const Shape shape = in->shape;
  const std::int64_t rows = shape.empty() ? 0 : shape[0];
  if (heads < 1 || rows % (2 * heads) != 0) {
    return MakeError(ErrorCode::kCorrupt, "the rows of a projection are no heads of pairs, as interleaved rotary embeddings need")
        .WithExpected(fmt::format("a multiple of {} rows", 2 * heads))
        .WithFound(ToString(shape));
  }
  Shape pairs = {heads, rows / (2 * heads), 2};
  std::vector<int> axes = {0, 2, 1};
  for (std::size_t i = 1; i < shape.size(); ++i) {
    pairs.push_back(shape[i]);
    axes.push_back(static_cast<int>(i) + 2);
  }
  CROSSDOCK_ASSIGN_OR_RETURN(expr::Expr out, expr::Reshape(std::move(in), pairs));
  CROSSDOCK_ASSIGN_OR_RETURN(out, expr::Transpose(std::move(out), std::move(axes)));
  return expr::Reshape(std::move(out), shape);
}

}  // namespace

bool IsInterleaved(const Value& args) { return args.GetBool("rotary_interleaved").value_or(false); }

Status UndoInterleaving(const Value& args, std::vector<HubTensor>* tensors) {
  if (const double percent = args.GetFloat("rotary_percent").value_or(1.0); percent != 1.0) {
    return MakeError(ErrorCode::kUnsupported, "rotary_interleaved with heads that are rotated in part has no rule")
        .WithExpected("rotary_percent = 1")
        .WithFound(fmt::format("{}", percent));
  }
  const std::int64_t heads = args.GetInt("num_attention_heads").value_or(0);
  const bool grouped = args.GetBool("group_query_attention").value_or(true);
  const std::int64_t groups = grouped ? args.GetInt("num_query_groups").value_or(heads) : heads;
  for (HubTensor& tensor : *tensors) {
    const std::int64_t count = HeadsOf(tensor.name, heads, groups);
    if (count == 0) continue;
    Result<expr::Expr> made = EvenRowsFirst(tensor.expr, count);
    if (!made) return Error(std::move(made).error()).WithTensor(tensor.name);
    tensor.expr = expr::Simplify(*made);
  }
  return OkStatus();
}

}  // namespace crossdock::dialects::mcore
