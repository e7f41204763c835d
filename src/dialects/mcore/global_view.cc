// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/global_view.h"

#include <algorithm>
#include <utility>

#include "dialects/mcore/args.h"
#include "dialects/mcore/bucket_view.h"
#include "dialects/mcore/flattened.h"
#include "dialects/mcore/fsdp_view.h"
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
      if (key.slot) seen.name = SlotKey(*key.slot, key.model_key);
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

/// What the common state says of an optimizer whose state is seen whole.
void DeclareBucketOptimizer(BucketState* state, Value* common) {
  const auto one = [&](ValueList groups) {
    Value torch = Value::MakeDict();
    torch.Set("param_groups", Value::MakeList(std::move(groups)));
    Value optimizer = Value::MakeDict();
    optimizer.Set("optimizer", std::move(torch));
    if (state->grad_scaler) optimizer.Set("grad_scaler", *state->grad_scaler);
    return optimizer;
  };
  Value optimizer = one(std::move(state->param_groups));
  if (!state->expert_groups.empty()) optimizer = Value::MakeDict({{Value(0), std::move(optimizer)}, {Value(1), one(std::move(state->expert_groups))}});
  common->Set("optimizer", std::move(optimizer));
  DeclareFullyReshardable(common);
}

/// Flat buckets become whole tensors; where they cannot, the reason is kept and the rest is seen as it is.
Result<GlobalView> SeeBuckets(const Catalog& source, const ViewOptions& options) {
  GlobalView view;
  Result<BucketState> read = ReadBuckets(source, options.load);
  if (!read) {
    view.optimizer_refusal = Reason(read.error());
    return view;
  }
  BucketState state = *std::move(read);
  view.identity = false;
  view.prove_masters = true;
  view.notices = std::move(state.notices);
  view.catalog = source;
  view.catalog.entries = std::move(state.entries);
  view.exprs = std::move(state.exprs);
  for (std::size_t i = 0; i < source.entries.size(); ++i) {
    const Entry& stored = source.entries[i];
    if (ParseTensorKey(stored.name).kind == TensorKey::Kind::kBucket) continue;
    view.catalog.entries.push_back(stored);
    view.exprs.push_back(expr::Leaf(static_cast<int>(i), stored.dtype, stored.shape));
  }
  std::erase_if(view.catalog.object_refs, [](const ObjectRef& ref) { return ref.name.find("optimizer.distributed.") != std::string::npos; });
  CROSSDOCK_RETURN_IF_ERROR(SortView(&view));
  if (const Value* stored = CommonState(source)) {
    Value common = *stored;
    DeclareBucketOptimizer(&state, &common);
    view.catalog.objects["common"] = std::move(common);
  }
  return view;
}

}  // namespace

Result<Expr> GlobalView::OverSource(const Expr& seen) const {
  if (identity) return seen;
  CROSSDOCK_ASSIGN_OR_RETURN(const Expr placed, expr::Substitute(seen, [&](int i) -> Result<Expr> { return exprs[static_cast<std::size_t>(i)]; }));
  return expr::Simplify(placed);
}

std::int32_t GlobalView::StoredEntry(std::int32_t seen) const {
  if (identity || seen < 0) return seen;
  const Expr& expr = exprs[static_cast<std::size_t>(seen)];
  return expr->op == expr::Op::kLeaf ? expr->leaf : -1;
}

Result<GlobalView> MakeGlobalView(const Catalog& source, const ViewOptions& options) {
  if (IsMegatronFsdp(source)) return SeeMegatronFsdp(source, options);
  if (IsLegacy(source)) return SeeLegacy(source, options);
  if (!source.flattened_entries.empty() && !options.no_optim) return SeeFlattened(source);
  if (options.load && !options.no_optim && HasBuckets(source)) return SeeBuckets(source, options);
  return GlobalView();
}

}  // namespace crossdock::dialects::mcore
