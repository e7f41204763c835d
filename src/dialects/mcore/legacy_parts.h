// SPDX-License-Identifier: Apache-2.0
/// \file  What each stage of a legacy checkpoint consists of: the parameters of its model chunks by the names of their modules, in the
/// order in which Megatron-Core registers them, each with the entries of the global catalog that it and its optimizer state come from.
/// Source: megatron-core 0.19.2, the sharded_state_dict of its modules and GPTModel's constructor; registration_order.h for the order.
/// Errors: kIncomplete for a parameter with a part of its state only, kUnsupported for state or modules that the form cannot hold.
/// Threads: immutable once made.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dialects/mcore/bucket_keys.h"
#include "dialects/mcore/legacy_names.h"
#include "dialects/mcore/legacy_shards.h"
#include "layout/stage_map.h"

namespace crossdock::dialects::mcore {

/// Entry indices of one model key: the parameter and its optimizer states, -1 = absent.
struct StateEntries {
  std::int32_t param = -1;
  std::array<std::int32_t, kBucketSlots.size()> states = {-1, -1, -1};
  std::int32_t momentum = -1;   ///< Muon's, instead of the last two
};

/// A parameter of one chunk of one rank.
struct LocalParameter {
  std::string name;             ///< of the module
  const StateEntries* source = nullptr;
  LegacyPart part;              ///< of the source; experts as this rank counts them
  std::int64_t experts = 0;     ///< how many of them a rank has; 0: no expert's
};

struct LocalChunk {
  std::vector<LocalParameter> parameters;   ///< in order of registration
  std::string prefix;                       ///< of its language model, where that is a part of a larger model
  bool head = false;
};

class LegacyParts {
 public:
  /// REQUIRES: `entries` and `layout` outlive it. `files`: the parts go into files, whose objects have an order; tensors in memory have none.
  static Result<LegacyParts> Make(const std::vector<Entry>& entries, const layout::ParallelLayout& layout, const Value& args, std::int64_t layers, bool files);

  [[nodiscard]] Result<std::vector<LocalChunk>> OfStage(int stage) const;

  [[nodiscard]] bool with_optimizer() const { return with_optimizer_; }
  [[nodiscard]] bool with_muon() const { return with_muon_; }
  [[nodiscard]] bool has_experts() const { return has_experts_; }
  /// Layers of multi-token prediction stand with the head, or where the layout string has them, and have the embedding beside them.
  [[nodiscard]] bool PredictsTokens() const;

 private:
  LegacyParts(const std::vector<Entry>& entries, const layout::ParallelLayout& layout) : entries_(&entries), layout_(&layout) {}

  Status SortEntries(bool files);
  Status ReadSource(const std::string& key, const StateEntries& source);
  [[nodiscard]] const Entry& EntryAt(std::int32_t index) const { return (*entries_)[static_cast<std::size_t>(index)]; }
  Status AddOf(const std::string& key, const StateEntries& source, const layout::StageMap::ModelChunk& part, bool predicts, std::vector<LocalParameter>* out) const;
  void AddTower(const std::string& key, const StateEntries& source, std::vector<LocalParameter>* out) const;
  Status AddLayers(LocalParameter parameter, std::vector<LocalParameter>* out) const;
  void AddTiedHead(std::vector<LocalParameter>* out) const;

  const std::vector<Entry>* entries_;
  const layout::ParallelLayout* layout_;
  std::map<std::string, StateEntries> sources_;   // by model key
  layout::StageMap stages_;
  LayerSpec spec_ = LayerSpec::kTransformerEngine;
  bool files_ = true;
  bool tied_ = false;
  bool groups_experts_ = false;
  bool with_optimizer_ = false;
  bool with_muon_ = false;
  bool has_experts_ = false;
  int mtp_stage_ = -1;                            // of the layout string; -1: with the head
};

}  // namespace crossdock::dialects::mcore
