// SPDX-License-Identifier: Apache-2.0
/// \file  What dialects give and take: HubState, a whole training state by hub names; TargetState, the same arranged
/// for one consumer. A dialect knows names, configuration and side files, never where bytes lie.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "expr/expr.h"
#include "family/bind.h"
#include "layout/stage_map.h"
#include "tensor/catalog.h"

namespace crossdock::dialects {

/// A hub tensor as an expression whose leaf ordinals are entry indices of the source catalog.
struct HubTensor {
  std::string name;                 ///< the hub (released Hugging Face) name
  Slot slot = Slot::kParam;
  DType dtype = DType::kF32;
  Shape shape;
  expr::Expr expr;
};

/// Something of the source that will not be in the target, and why; printed in every summary.
struct LeftOut {
  std::string name;
  std::string reason;
  std::int64_t count = 1;
  std::int64_t bytes = 0;
};

/// Two source tensors that the configuration declares to be one: the caller compares their data before
/// work. The head is no hub tensor; a Hugging Face target gets it again.
struct TiedPair {
  std::int32_t embedding = -1;                          ///< entries of the source catalog
  std::int32_t head = -1;
};

/// A hub tensor that the family declares to repeat another one (families/SCHEMA.md, `copies`). It is not carried: where the source
/// holds both the caller compares them, and a Hugging Face target gets it again.
struct HubCopy {
  std::string name, of;                                 ///< hub names
  std::int32_t entry = -1, original = -1;               ///< entries of the source catalog; -1: not there
  bool absent = false;                                  ///< the source's format would store it, and the source does without
};

struct Counters {
  std::optional<std::int64_t> step;                     ///< training iteration
  std::optional<std::int64_t> adam_count;
  std::optional<std::int64_t> muon_count;
  std::optional<std::int64_t> consumed_train_samples;
  bool operator==(const Counters&) const = default;
};

/// What the random number generators of a Megatron run's ranks were at, kept as they are stored: they mean something to a run of the
/// very same division among ranks alone.
struct RandomStates {
  std::string layout;                                   ///< that division (mcore/random_state.h)
  Value states = Value::MakeDict();                     ///< by the keys of torch_dist; empty: there are none
  std::string refusal;                                  ///< why those that are there cannot be carried
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(states.as_dict()->items.size()); }
};

struct HubState {
  const family::FamilyFile* family = nullptr;           ///< outlives the state
  family::ModelConfig config;                           ///< of the source
  family::Model model;                                  ///< its sizes, words and kinds of layers, read from `config`
  std::vector<HubTensor> tensors;                       ///< sorted by (name, slot)
  std::vector<std::string> order;                       ///< hub names in the source's or the rule file's order
  Counters counters;
  std::string optimizer;                                ///< "adam", "muon", "" = none
  /// What the momentum of Muon is: "ema", new = b old + (1 - b) gradient; "sum", new = b old + gradient; "": nothing said so.
  std::string muon_momentum;
  std::optional<double> muon_beta;                      ///< b, where the source says it
  std::string model_name;                               ///< what a full state calls its model; "": nothing said so
  /// The source holds optimizer state that cannot be carried, and why. A target that holds optimizer state refuses with
  /// it, so that none is lost in silence; a reader told `no_optim` leaves it empty.
  std::string optimizer_refusal;
  Value extras = Value::MakeDict();                     ///< scheduler, param groups, hyperparameters, scaler: words of the source
  std::string extras_words;                             ///< "mcore", "full-state", ""
  RandomStates random;                                  ///< of a full state; those of a Megatron source are read where they are wanted
  Value step_metadata = Value::MakeDict();              ///< of an Orbax step: what its writer put into the custom metadata, without our own words
  Value trainer_levels;                                 ///< of a Tunix step: the record of what was taken off (tunix/levels.h); else null
  std::vector<SideFile> side_files;                     ///< tokenizer, config.json, ... that travel with the model
  std::optional<std::int64_t> padded_vocab;             ///< rows of the vocabulary that the source stores, padding included
  std::optional<TiedPair> tied;                         ///< set when the source holds both
  std::vector<HubCopy> copies;
  std::string load_hint;                                ///< how the source itself is loaded, for inspect
  Value layout = Value::MakeDict();                     ///< tp, pp, ... of the source where it says so, for inspect
  std::vector<LeftOut> left_out;
  std::vector<std::string> notices;                     ///< assumptions and oddities, for the summary
};

/// --fp8: how a Hugging Face target's weights are quantized, and how that is declared.
struct Fp8Options {
  enum class Strategy : std::uint8_t { kBlock, kChannel, kTensor };
  Strategy strategy = Strategy::kBlock;
  expr::BlockFormat block;                              ///< of kBlock
  bool ue8m0 = false;                                   ///< --scale-fmt: scales are powers of two
  bool relax = false;                                   ///< --fp8-arith relax
  bool compressed_tensors = false;                      ///< declared as compressed-tensors, else as `fp8`
  std::vector<std::string> skip, only;                  ///< patterns (fnmatch) over written names, with or without `.weight`
  int check_tp = 0;                                     ///< --check-tp; 0: not asked
};

struct TargetOptions {
  layout::ParallelLayout layout;
  std::optional<DType> dtype;                           ///< --dtype: cast of params
  std::vector<std::string> keep_dtype;                  ///< --keep-dtype patterns (fnmatch over hub names)
  std::string consumer;                                 ///< --for, without version
  std::string consumer_version;
  std::optional<std::int64_t> iteration;                ///< --iteration
  bool release = false;
  std::optional<std::int64_t> vocab_divisor;            ///< --make-vocab-size-divisible-by
  std::optional<std::int64_t> padded_vocab;             ///< --padded-vocab-size
  std::map<std::string, std::string> set_args;          ///< --set ARG=VALUE
  bool scan_layers = true;                              ///< MaxText: layers of one kind lie along an axis
  int scan_axis = 1;                                    ///< MaxText: which one, param_scan_axis
  int zstd_level = 0;                                   ///< MaxText: how chunks are compressed; 0: not at all
  std::int64_t max_shard_bytes = 5'000'000'000;         ///< --max-shard-size
  bool params_from_master = false;                      ///< --params-from master
  bool no_rng = false;                                  ///< --no-rng
  RandomStates random;                                  ///< of the source
  std::string experts;                                  ///< --experts: "single", "fused", a spelling's name; "": as the template or released
  std::optional<Fp8Options> fp8;                        ///< --fp8
  /// --hf-template: its config.json as a Value, its index order, its side files; absent when not given.
  std::optional<family::ModelConfig> template_config;
  std::vector<std::string> template_order;
  std::map<std::string, Shape> template_shapes;         ///< of its weights, where they are there and the family has several spellings
  std::vector<SideFile> template_side_files;
};

struct TargetState {
  Catalog catalog;                                      ///< unplaced; objects and side files (markers included) are set
  std::vector<expr::Expr> exprs;                        ///< one an entry; leaves are source entries
  layout::StageMap stages;                              ///< who holds which layers; no chunks: the target has no stages
  std::map<std::string, std::string> scale_of;          ///< FP8: a tensor of scales -> its weight, with which it shares a file
  std::vector<std::string> order;                       ///< FP8: names in the order in which files are filled; empty: as the source or template
  std::string unit_name;                                ///< "iter_0000007", "release"; empty: the target itself
  std::int64_t random_states = 0;                       ///< ranks whose random states are carried
  std::vector<LeftOut> left_out;                        ///< beyond the source's own
  std::vector<std::string> notices;                     ///< casts, differences of configuration, padding
  std::vector<std::string> load_line;                   ///< the command or flags that load the result
};

}  // namespace crossdock::dialects
