// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/adapter.h"

#include <algorithm>

namespace crossdock::dialects::tunix {
namespace {

/// What stands at the root of every MaxText model.
bool IsModel(const LeafNode& node) { return node.Below("decoder") != nullptr || node.Below("token_embedder") != nullptr; }

bool AllNamed(const LeafNode& node, const std::set<std::string>& names) {
  bool all = true;
  VisitLeaves(node, "", [&](const std::string& name, const LeafNode&) { all = all && names.contains(name); });
  return all;
}

}  // namespace

std::string AdapterOfParams(const LeafNode& params) {
  const LeafNode* base = params.Below(kAdapter);
  if (base == nullptr || IsModel(params)) return "";
  return IsModel(*base) || params.Only(kAdapter) ? std::string(kAdapter) : "";
}

std::string AdapterOfState(const LeafNode& state, const std::set<std::string>& names) {
  const LeafNode* base = state.Below(kAdapter);
  if (base == nullptr || AllNamed(state, names)) return "";
  return AllNamed(*base, names) ? std::string(kAdapter) : AdapterOfParams(state);
}

const LeafNode& Within(const LeafNode& node, const std::string& adapter) {
  const LeafNode* below = adapter.empty() ? nullptr : node.Below(adapter);
  return below == nullptr ? node : *below;
}

}  // namespace crossdock::dialects::tunix
