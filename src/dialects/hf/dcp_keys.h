// SPDX-License-Identifier: Apache-2.0
/// \file  The keys of a plain PyTorch DCP of a Hugging Face model: which is a weight, which its optimizer state.
/// Reference: torch 2.15, torch/distributed/checkpoint/state_dict.py: `<P><name>`, `<Q>state.<name>.exp_avg`, `.exp_avg_sq`,
/// `.step`, `.momentum_buffer`, `<Q>param_groups.<N>.<field>`. P and Q are the user's own words (`model.`, `state_dict.model.`, `app.optim.`,
/// nothing): they are found by what stands behind them, the names of the family. Wrappers leave segments in names
/// (`module`, `_orig_mod`, `_fsdp_wrapped_module`, `_checkpoint_wrapped_module`), which no Hugging Face name has.
/// Threads: plain values, pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace crossdock::dialects::hf {

/// `key` without the segments of wrappers.
[[nodiscard]] std::string WithoutWrappers(std::string_view key);

/// A key that ends in a name of the family.
struct NamedKey {
  std::string prefix;    ///< what stands before the name, "" or with its last dot
  std::string hub;       ///< the released name
  bool shortened = false;  ///< spelled without `model.`, as a base model's own state dict has it
};

enum class StateKind { kMu, kNu, kStep, kMomentum };
struct StateKey {
  std::string prefix;    ///< before `state.`
  std::string name;      ///< the parameter as the optimizer names it, wrappers removed: a name of the family, or digits
  StateKind kind = StateKind::kMu;
};

class NameIndex {
 public:
  explicit NameIndex(const std::vector<std::string>& hub_names);

  /// The longest ending of `key` (wrappers removed, cut at a dot) that is a name. `shortened` allows the spelling without `model.`.
  [[nodiscard]] std::optional<NamedKey> Find(std::string_view key, bool shortened) const;

  /// True for `<Q>state.<name>.<anything>`.
  [[nodiscard]] bool IsStateOfParameter(std::string_view key) const;

 private:
  std::unordered_map<std::string, std::string> full_, short_;  // looked up only
};

/// Splits a key of Adam's or Muon's state; nothing for other keys. SGD calls its state as Muon does: see HasSgd.
[[nodiscard]] std::optional<StateKey> ParseStateKey(std::string_view key);

/// `<prefix>param_groups.<group>.<field>`: the group is a number, or a parameter's name (flattened state dicts).
struct GroupKey {
  std::string group;
  std::string field;
};
[[nodiscard]] std::optional<GroupKey> ParseGroupKey(std::string_view key);

}  // namespace crossdock::dialects::hf
