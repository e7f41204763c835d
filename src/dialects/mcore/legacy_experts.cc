// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/legacy_experts.h"

#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;

/// What GroupedMLP calls [h, n * 2f] or [n * f, h], as the linear layers of its experts: [n, 2f, h] or [n, h, f].
Result<Expr> FromMemory(const Expr& part, std::int64_t experts, bool first_matrix) {
  const Shape& shape = part->shape;
  const std::size_t divided = first_matrix ? 1 : 0;
  if (shape.size() != 2 || experts < 1 || shape[divided] % experts != 0) {
    return MakeError(ErrorCode::kCorrupt, "a matrix of all experts of a rank does not divide among them")
        .WithExpected(fmt::format("two axes, a multiple of {} on axis {}", experts, divided))
        .WithFound(ToString(shape));
  }
  const Shape memory = first_matrix ? Shape{experts, shape[0], shape[1] / experts} : Shape{experts, shape[0] / experts, shape[1]};
  CROSSDOCK_ASSIGN_OR_RETURN(Expr blocks, expr::Reshape(part, memory));
  return expr::Transpose(std::move(blocks), {0, 2, 1});
}

}  // namespace

Result<Expr> JoinExperts(const ExpertParts& parts, const Cut& cut, bool gated) {
  std::vector<Expr> all;
  for (const auto& rank : parts.parts) {
    if (parts.memory) {
      std::vector<Expr> within;
      for (const auto& one : rank) {
        CROSSDOCK_ASSIGN_OR_RETURN(Expr linear, FromMemory(one.front(), parts.experts, cut.axis == 1));
        within.push_back(std::move(linear));
      }
      CROSSDOCK_ASSIGN_OR_RETURN(Expr joined, JoinRanks(within, cut, gated));
      all.push_back(std::move(joined));
      continue;
    }
    const std::optional<Cut> of_one = cut.axis == 0 ? std::nullopt : std::optional<Cut>(Cut{cut.axis - 1, cut.halves, false});
    for (std::size_t e = 0; e < rank.front().size(); ++e) {
      std::vector<Expr> within;
      for (const auto& one : rank) within.push_back(one.at(e));
      CROSSDOCK_ASSIGN_OR_RETURN(Expr joined, JoinRanks(within, of_one, gated));
      all.push_back(std::move(joined));
    }
  }
  for (const Expr& one : all) {
    if (one->shape == all.front()->shape && one->dtype == all.front()->dtype) continue;
    return MakeError(ErrorCode::kCorrupt, "the experts of a layer are not alike")
        .WithExpected(fmt::format("{} {}, as the first", DTypeName(all.front()->dtype), ToString(all.front()->shape)))
        .WithFound(fmt::format("{} {}", DTypeName(one->dtype), ToString(one->shape)));
  }
  return parts.memory ? expr::Concat(std::move(all), 0) : expr::Stack(all, 0);
}

Result<Expr> StackLayers(const std::vector<Expr>& layers) {
  const auto one = [](const Expr& part) {
    Shape shape = {1};
    for (const std::int64_t n : part->shape) shape.push_back(n);
    return expr::Reshape(part, shape);
  };
  std::vector<Expr> all;
  for (const Expr& layer : layers) {
    std::vector<Expr> parts;
    const bool joined = layer->op == expr::Op::kConcat && layer->axis == 0;
    for (const Expr& part : joined ? layer->inputs : std::vector<Expr>{layer}) {
      CROSSDOCK_ASSIGN_OR_RETURN(Expr wide, one(part));
      parts.push_back(std::move(wide));
    }
    CROSSDOCK_ASSIGN_OR_RETURN(Expr wide, expr::Concat(std::move(parts), 1));
    all.push_back(std::move(wide));
  }
  return expr::Concat(std::move(all), 0);
}

}  // namespace crossdock::dialects::mcore
