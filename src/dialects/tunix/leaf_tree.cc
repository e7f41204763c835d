// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/leaf_tree.h"

#include <algorithm>
#include <utility>

namespace crossdock::dialects::tunix {
namespace {

constexpr std::string_view kBox = "value";

std::string KeyText(const Value& key) { return key.as_int() != nullptr ? std::to_string(*key.as_int()) : key.as_string() != nullptr ? *key.as_string() : ""; }

/// Boxes come off where they are met from above: what is a leaf only because its own box came off is none's.
void TakeBoxes(LeafNode& node) {
  if (node.Only(kBox) && node.children.begin()->second.leaf) {
    LeafNode inner = std::move(node.children.begin()->second);
    node = std::move(inner);
    node.boxed = true;
    return;
  }
  for (auto& [key, child] : node.children) TakeBoxes(child);
}

Status CheckNotQuantized(const LeafNode& node, const std::string& name) {
  const LeafNode* values = node.Find("qvalue");
  const LeafNode* scales = node.Find("scale");
  if (values != nullptr && scales != nullptr && values->leaf && scales->leaf) {
    return MakeError(ErrorCode::kUnsupported, "the parameter is quantized (qwix): what it stands for is not converted")
        .WithTensor(name)
        .WithExpected("one array")
        .WithFound("`qvalue` and `scale`")
        .WithHint("save the model before it is quantized, or its adapters alone");
  }
  for (const auto& [key, child] : node.children) CROSSDOCK_RETURN_IF_ERROR(CheckNotQuantized(child, Dotted(name, key)));
  return OkStatus();
}

}  // namespace

const LeafNode* LeafNode::Find(std::string_view key) const {
  const auto found = children.find(key);
  return found == children.end() ? nullptr : &found->second;
}

const LeafNode* LeafNode::Below(std::string_view key) const {
  const LeafNode* found = Find(key);
  return found != nullptr && !found->leaf ? found : nullptr;
}

bool LeafNode::HoldsArrays() const {
  if (leaf) return entry >= 0;
  return std::any_of(children.begin(), children.end(), [](const auto& child) { return child.second.HoldsArrays(); });
}

Result<LeafNode> LeavesOf(const Catalog& catalog, std::string_view item) {
  LeafNode root;
  const auto rows = catalog.objects.find("tree");
  if (rows == catalog.objects.end() || rows->second.as_sequence() == nullptr) return root;
  for (const Value& row : *rows->second.as_sequence()) {
    const Value* path = row.Find("path");
    const ValueList* keys = path == nullptr ? nullptr : path->as_sequence();
    if (keys == nullptr || keys->size() < 2 || KeyText(keys->front()) != item) continue;
    LeafNode* at = &root;
    for (std::size_t i = 1; i < keys->size(); ++i) at = &at->children[KeyText((*keys)[i])];
    at->leaf = true;
    at->type = row.GetString("value_type").value_or("");
    at->entry = catalog.Find(maxtext::ArrayName(*keys));
    if (const Value* kind = row.Find("ext_metadata")) at->random_key = *kind;
  }
  for (auto& [key, child] : root.children) TakeBoxes(child);
  CROSSDOCK_RETURN_IF_ERROR(CheckNotQuantized(root, std::string(item)));
  return root;
}

void VisitLeaves(const LeafNode& node, const std::string& prefix, const std::function<void(const std::string&, const LeafNode&)>& visit) {
  if (node.leaf) visit(prefix, node);
  for (const auto& [key, child] : node.children) VisitLeaves(child, Dotted(prefix, key), visit);
}

std::string Dotted(std::string_view a, std::string_view b) {
  std::string out(a);
  if (!a.empty() && !b.empty()) out += '.';
  return out.append(b);
}

}  // namespace crossdock::dialects::tunix
