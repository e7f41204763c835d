// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/view_catalog.h"

#include <algorithm>

#include "fmt/format.h"

namespace crossdock::dialects::mcore {
namespace {

constexpr const char* kShardingType = "fully_reshardable";

void DeclareOptimizer(Value* optimizer) {
  if (optimizer->Find("optimizer") != nullptr || optimizer->Find("param_state_sharding_type") != nullptr) {
    optimizer->Set("param_state_sharding_type", Value(kShardingType));
  }
}

}  // namespace

std::string Reason(const Error& why) {
  return fmt::format("{}{}{}{}{}", why.message, why.path.empty() ? "" : " in " + Printable(why.path), why.tensor.empty() ? "" : " (" + Printable(why.tensor) + ")",
                     why.expected.empty() ? "" : ", expected " + why.expected, why.found.empty() ? "" : ", found " + why.found);
}

Status SortView(GlobalView* view) {
  std::vector<std::size_t> order(view->catalog.entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return view->catalog.entries[a].name < view->catalog.entries[b].name; });
  std::vector<Entry> entries;
  std::vector<expr::Expr> exprs;
  for (const std::size_t i : order) {
    if (!entries.empty() && entries.back().name == view->catalog.entries[i].name) {
      return MakeError(ErrorCode::kCorrupt, "two tensors mean the same").WithTensor(entries.back().name);
    }
    entries.push_back(std::move(view->catalog.entries[i]));
    exprs.push_back(std::move(view->exprs[i]));
  }
  view->catalog.entries = std::move(entries);
  view->exprs = std::move(exprs);
  return OkStatus();
}

void DeclareFullyReshardable(Value* common) {
  Value metadata = Value::MakeDict();
  if (const Value* stored = common->Find("content_metadata"); stored != nullptr && stored->as_dict() != nullptr) metadata = *stored;
  metadata.Set("distrib_optim_sharding_type", Value(kShardingType));
  metadata.Set("distrib_optim_fully_reshardable_mem_efficient", Value(false));
  metadata.Set("chained_optim_avoid_prefix", Value(true));
  common->Set("content_metadata", std::move(metadata));
  const Value* stored = common->Find("optimizer");
  if (stored == nullptr) return;
  Value optimizer = *stored;
  if (ValueList* chained = optimizer.mutable_sequence()) {
    for (Value& one : *chained) {
      if (one.as_dict() != nullptr) DeclareOptimizer(&one);
    }
  } else if (Value::Dict* dict = optimizer.as_dict()) {
    for (auto& [key, one] : dict->items) {
      if (key.as_string() == nullptr && one.as_dict() != nullptr) DeclareOptimizer(&one);  // {0: ..., 1: ...}
    }
    DeclareOptimizer(&optimizer);
  }
  common->Set("optimizer", std::move(optimizer));
}

}  // namespace crossdock::dialects::mcore
