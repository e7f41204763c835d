// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/flat_buffer.h"

#include <algorithm>

#include "fmt/format.h"

namespace crossdock::dialects::mcore {

using expr::Expr;

Result<Expr> OutOfBuffer(const layout::BucketLayout& layout, std::span<const Expr> flats, std::size_t param, const Shape& shape) {
  const layout::BucketLayout::Place& place = layout.params[param];
  const bool joined = flats.size() == 1 && layout.numel_unpadded.size() > 1;
  const Expr& flat = flats[joined ? 0 : static_cast<std::size_t>(place.bucket)];
  const std::int64_t start = joined ? place.coalesced : place.start;
  Box box;
  box.offsets = Dims{start};
  box.sizes = Dims{CheckedCount(shape)};
  if (flat->shape.size() != 1 || !box.FitsIn(flat->shape)) {
    return MakeError(ErrorCode::kCorrupt, "the optimizer's flat buffer is too small for its parameters")
        .WithExpected(fmt::format("at least {} elements", start + box.sizes[0]))
        .WithFound(ToString(flat->shape));
  }
  CROSSDOCK_ASSIGN_OR_RETURN(Expr part, expr::Slice(flat, std::move(box)));
  return expr::Reshape(std::move(part), shape);
}

Result<Expr> IntoBuffer(const layout::BucketLayout& layout, std::span<const Expr> params) {
  std::vector<std::size_t> order(params.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return layout.params[a].coalesced < layout.params[b].coalesced; });
  const std::int64_t total = layout.total_unpadded();
  std::vector<Expr> parts;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Expr& param = params[order[k]];
    const std::int64_t numel = CheckedCount(param->shape);
    CROSSDOCK_ASSIGN_OR_RETURN(Expr flat, expr::Reshape(param, Shape{numel}));
    const std::int64_t next = k + 1 < order.size() ? layout.params[order[k + 1]].coalesced : total;
    const std::int64_t room = next - layout.params[order[k]].coalesced;
    if (room != numel) {
      CROSSDOCK_ASSIGN_OR_RETURN(flat, expr::Pad(std::move(flat), Dims{0}, Shape{room}));
    }
    parts.push_back(std::move(flat));
  }
  if (parts.size() == 1) return parts.front();
  return expr::Concat(std::move(parts), 0);
}

}  // namespace crossdock::dialects::mcore
