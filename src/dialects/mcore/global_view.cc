// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/global_view.h"

#include <algorithm>

#include "dialects/mcore/flattened.h"
#include "dialects/mcore/keys.h"
#include "dialects/mcore/legacy_ranks.h"
#include "dialects/mcore/legacy_view.h"
#include "dialects/mcore/view_catalog.h"
#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

using expr::Expr;

/// The shape of the parameter that a flattened shard belongs to: the state of a parameter has its shape.
Result<Shape> LogicalShape(const Catalog& source, const TensorKey& key, const std::string& name) {
  const std::int32_t param = key.model_key.empty() ? -1 : source.Find(key.model_key);
  if (param >= 0) return source.entries[static_cast<std::size_t>(param)].shape;
  return MakeError(ErrorCode::kUnsupported, "a flattened optimizer shard belongs to no stored parameter, so that its shape is not known")
      .WithTensor(name)
      .WithExpected(fmt::format("a tensor {}", Printable(key.model_key)))
      .WithHint("--no-optim leaves the optimizer state behind");
}

/// Flattened shards become whole tensors under the names that fully_reshardable gives them; the rest is as it is.
Result<GlobalView> SeeFlattened(const Catalog& source) {
  GlobalView view;
  view.identity = false;
  view.catalog = source;
  view.catalog.flattened_entries.clear();
  for (std::size_t i = 0; i < source.entries.size(); ++i) {
    const Entry& stored = source.entries[i];
    Expr made = expr::Leaf(static_cast<int>(i), stored.dtype, stored.shape);
    if (std::binary_search(source.flattened_entries.begin(), source.flattened_entries.end(), stored.name)) {
      const TensorKey key = ParseTensorKey(stored.name);
      Entry& seen = view.catalog.entries[i];
      CROSSDOCK_ASSIGN_OR_RETURN(seen.shape, LogicalShape(source, key, stored.name));
      Result<Expr> whole = FromFlattenedBlocks(made, seen.shape);
      if (!whole) return Error(std::move(whole).error()).WithTensor(stored.name);
      made = *std::move(whole);
      if (key.slot && key.slot != Slot::kMuonMu) seen.name = SlotKey(*key.slot, key.model_key);
      seen.chunks.clear();
    }
    view.exprs.push_back(std::move(made));
  }
  CROSSDOCK_RETURN_IF_ERROR(SortView(&view));
  if (const auto common = view.catalog.objects.find("common"); common != view.catalog.objects.end() && common->second.as_dict() != nullptr) {
    DeclareFullyReshardable(&common->second);
  }
  return view;
}

}  // namespace

Result<Expr> GlobalView::OverSource(const Expr& seen) const {
  if (identity) return seen;
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr placed, expr::Substitute(seen, [&](int i) -> Result<Expr> { return exprs[static_cast<std::size_t>(i)]; }));
  return expr::Simplify(placed);
}

Result<GlobalView> MakeGlobalView(const Catalog& source, const ViewOptions& options) {
  if (IsLegacy(source)) return SeeLegacy(source, options);
  if (!source.flattened_entries.empty() && !options.no_optim) return SeeFlattened(source);
  return GlobalView();
}

}  // namespace crossdock::dialects::mcore
