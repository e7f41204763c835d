// SPDX-License-Identifier: Apache-2.0
#include "dialects/tunix/optimizer_levels.h"
#include "base/digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace crossdock::dialects::tunix {
namespace {

using maxtext::OptimizerKind;

constexpr std::string_view kOptState = "opt_state";
constexpr std::array<std::string_view, 2> kInner = {"inner_state", "inner_opt_state"};

bool IsChain(const LeafNode& node) {
  return !node.leaf && !node.children.empty() && std::all_of(node.children.begin(), node.children.end(), [](const auto& child) { return OnlyDigits(child.first); });
}

bool IsAdam(const LeafNode& node) { return node.Below("mu") != nullptr && node.Below("nu") != nullptr; }
bool IsSchedule(const LeafNode& node) { return node.Only("count") && node.children.begin()->second.leaf; }
bool IsPartition(const LeafNode& node) { return node.Below("inner_states") != nullptr; }

/// The key of what a wrapper wraps; "" for what is none.
std::string_view InnerOf(const LeafNode& node) {
  for (const std::string_view key : kInner) {
    if (node.Below(key) != nullptr) return key;
  }
  return {};
}

bool IsInjected(const LeafNode& node) {
  return node.Below("inner_state") != nullptr && node.Find("count") != nullptr && node.Below("hyperparams") != nullptr;
}

bool IsLevel(const LeafNode& node) { return IsChain(node) || IsPartition(node) || !InnerOf(node).empty(); }

class Finder {
 public:
  explicit Finder(const Catalog& catalog) : catalog_(catalog) {}

  OptimizerLevels Run(const LeafNode& state) {
    for (const auto& [key, child] : state.children) {
      if (key != kOptState && key != "step") Drop(key, child);
    }
    const LeafNode* at = state.Find(kOptState);
    if (at == nullptr || at->leaf) return std::move(out_);
    std::string name(kOptState);
    while (const LeafNode* below = Step(*at, name)) {
      at = below;
      name = Dotted(name, out_.shells.back());
    }
    out_.root = at;
    Optimizer(*at, name);
    return std::move(out_);
  }

 private:
  /// One level further in; null where the levels end.
  const LeafNode* Step(const LeafNode& node, const std::string& name) {
    if (IsPartition(node) || IsAdam(node)) return nullptr;
    if (const std::string_view inner = InnerOf(node); !inner.empty()) {
      Wrapper(node, name, inner);
      out_.shells.emplace_back(inner);
      return node.Below(inner);
    }
    if (!IsChain(node)) return nullptr;
    const LeafNode* only = nullptr;
    std::string_view key;
    for (const auto& [number, child] : node.children) {
      if (!child.HoldsArrays()) continue;
      if (only != nullptr) return nullptr;
      only = &child;
      key = number;
    }
    if (only == nullptr || !(IsLevel(*only) || (IsAdam(*only) && key != "0"))) return nullptr;
    out_.shells.emplace_back(key);
    return only;
  }

  /// What a wrapper holds beside the state that it wraps.
  void Wrapper(const LeafNode& node, const std::string& name, std::string_view inner) {
    const bool injected = IsInjected(node);
    for (const auto& [key, child] : node.children) {
      if (key == inner) continue;
      if (injected && key == "count" && !out_.shell_count) out_.shell_count = Dotted(name, key);
      if (key == "gradient_step" && child.leaf && node.Find("mini_step") != nullptr && !out_.updates) out_.updates = Dotted(name, key);
      if (key == "acc_grads" && !child.leaf) {
        out_.accumulated.emplace_back(Dotted(name, key), &child);
      } else {
        Drop(Dotted(name, key), child, child.leaf || (injected && key.starts_with("hyperparams")));
      }
    }
  }

  void Optimizer(const LeafNode& root, const std::string& name) {
    if (IsAdam(root)) {
      out_.kind = OptimizerKind::kAdamPax;
      Extras(root, name);
    } else if (IsPartition(root)) {
      Partition(root, name);
    } else {
      if (IsChain(root)) {
        for (const auto& [key, child] : root.children) Member(child, Dotted(name, key), key, true);
      } else {
        Drop(name, root);
      }
      if (out_.kind != OptimizerKind::kNone && !out_.adam.empty()) return;
      if (out_.schedule) Drop(Dotted(name, *out_.schedule), *At(root, *out_.schedule));
      out_.schedule.reset();
    }
  }

  /// One of several members of a chain that carry state, at `path` below the root.
  void Member(const LeafNode& node, const std::string& name, const std::string& path, bool of_chain) {
    if (IsAdam(node)) {
      if (!out_.adam.empty()) Refuse(fmt::format("two optimizers keep moments, in {} and in {}", out_.adam, path));
      out_.kind = OptimizerKind::kAdamW;
      out_.adam = path;
      Extras(node, name);
    } else if (of_chain && IsSchedule(node) && !out_.schedule) {
      out_.schedule = path;
    } else if (IsChain(node)) {
      for (const auto& [key, child] : node.children) Member(child, Dotted(name, key), Dotted(path, key), true);
    } else if (const std::string_view inner = InnerOf(node); !inner.empty()) {
      Wrapper(node, name, inner);
      Member(*node.Below(inner), Dotted(name, inner), Dotted(path, inner), false);
    } else {
      Drop(name, node);
    }
  }

  static const LeafNode* At(const LeafNode& root, std::string_view path) {
    const LeafNode* at = &root;
    while (at != nullptr && !path.empty()) {
      const std::size_t end = std::min(path.find('.'), path.size());
      at = at->Find(path.substr(0, end));
      path.remove_prefix(std::min(end + 1, path.size()));
    }
    return at;
  }

  /// What Adam's state holds beside its count and moments.
  void Extras(const LeafNode& adam, const std::string& name) {
    for (const auto& [key, child] : adam.children) {
      if (key != "count" && key != "mu" && key != "nu") Drop(Dotted(name, key), child);
    }
  }

  void Partition(const LeafNode& node, const std::string& name) {
    for (const auto& [key, child] : node.children) {
      if (key != "inner_states") Drop(Dotted(name, key), child);
    }
    for (const auto& [group, child] : node.Below("inner_states")->children) {
      if (!child.HoldsArrays()) continue;  // frozen
      if (group != "muon" && group != "adam") return Refuse(fmt::format("the optimizer divides the parameters, and one part is called {}", Printable(group)));
      out_.kind = OptimizerKind::kMuon;
    }
  }

  /// Numbers are dropped and recorded; an array that may be as large as a parameter would be lost.
  void Drop(const std::string& name, const LeafNode& node, bool wrappers_own = false) {
    VisitLeaves(node, name, [&](const std::string& leaf, const LeafNode& at) {
      if (at.entry < 0) return;
      out_.dropped.emplace_back(leaf, &at);
      if (!wrappers_own && !catalog_.entries[static_cast<std::size_t>(at.entry)].shape.empty()) Refuse(fmt::format("the optimizer keeps {}, which no other place has", Printable(leaf)));
    });
  }

  void Refuse(std::string why) {
    if (out_.refusal.empty()) out_.refusal = std::move(why);
  }

  const Catalog& catalog_;
  OptimizerLevels out_;
};

}  // namespace

OptimizerLevels FindOptimizerLevels(const LeafNode& state, const Catalog& catalog) { return Finder(catalog).Run(state); }

}  // namespace crossdock::dialects::tunix
