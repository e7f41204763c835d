// SPDX-License-Identifier: Apache-2.0
/// \file  Checkpoints inside a training loop: every rank reads its own part of a checkpoint straight into the tensors that it holds.
/// A rank is one of Megatron-Core's. Its tensors are named as its modules' state_dict names them, `decoder.layers.0.mlp.linear_fc1.weight`,
/// layers counted within the model chunk; with several model chunks (virtual pipeline stages) `model<i>.` stands before. `_extra_state`
/// items are no tensors. Types are spelled as safetensors spells them: "BF16", "F32", "F8_E4M3".
/// The values are those of `crossdock convert --to megatron-legacy` with the same layout.
/// Errors: as of convert. Threads: independent objects may be used at once; one object by one thread at a time. No call starts a
/// thread that outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "crossdock/options.h"
#include "crossdock/result.h"

namespace crossdock {

/// Where a rank stands, counted from 0 in each direction. Ranks of data and context parallelism hold the same weights.
struct RankPlace {
  int tensor = 0;
  int stage = 0;          ///< of the pipeline
  int expert = 0;
  int expert_tensor = 0;  ///< tensor rank within an expert
  bool operator==(const RankPlace&) const = default;
};

/// A rank as a launcher numbers it.
struct GlobalRank {
  int rank = 0;
  int world_size = 0;     ///< 0: the fewest ranks on which the layout is whole
  int context_parallel = 1;
};

/// Megatron-Core's default order, `tp-cp-ep-dp-pp` (parallel_state.initialize_model_parallel, 0.12 to 0.19): tensor ranks count fastest,
/// then those of context parallelism, then the copies, stages slowest; experts count their tensor ranks, then expert ranks, then copies, and
/// the same stages. kUsage for a rank outside the world, or a world that the layout does not divide.
[[nodiscard]] Result<RankPlace> PlaceOfRank(const LayoutOptions& options, const GlobalRank& rank);

/// A tensor of a rank.
struct LiveTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

/// Memory of the caller's for one tensor: row-major, without gaps.
struct LiveBuffer {
  std::string name;
  void* data = nullptr;
  std::int64_t bytes = 0;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

struct LoadOptions {
  std::string path;                                           ///< a checkpoint of any readable format, or a run's root
  std::optional<std::string> from;
  std::optional<StepChoice> step;
  std::optional<std::string> family, rules, hf_template;
  LayoutOptions layout;
  RankPlace place;
  std::optional<std::string> dtype;                           ///< "bf16", "fp16", "fp32": parameters are cast; absent: as they are stored
  std::vector<std::string> keep_dtype;                        ///< patterns over Hugging Face names that the cast leaves alone
  std::string consumer;                                       ///< as --for: whose names the modules of a larger model have; "": the family's first
  bool local_layers = false;                                  ///< modules are named as in Megatron's own layers, not as in TransformerEngine's
  bool grouped_experts = true;                                ///< `mlp.experts.linear_fc1.weight<e>`; else `mlp.experts.local_experts.<e>....`
  std::optional<std::int64_t> vocab_divisor;                  ///< as of convert: the padding of the vocabulary
  std::optional<std::int64_t> padded_vocab;
  std::string mtp = "keep";                                   ///< layers of multi-token prediction: "keep" or "drop"
  std::vector<std::pair<std::string, std::string>> set_args;  ///< as of convert
  std::vector<std::string> allow;                             ///< as of convert
};

struct ReadIntoOptions {
  int threads = 0;                                     ///< 0: min(cores, 8)
  std::int64_t memory = std::int64_t{512} << 20U;      ///< bytes for buffers, beside the caller's tensors
  bool strict = true;                                  ///< the buffers must be the rank's tensors, all of them and no others
  bool cast = false;                                   ///< where a buffer has another float type, values are cast to it; else that is an error
};

struct LoadReport {
  std::int64_t tensors = 0;
  std::int64_t bytes_read = 0;     ///< of the checkpoint's files, tables not counted
  std::int64_t bytes_written = 0;  ///< into the buffers
  std::int64_t peak_buffer_bytes = 0;
  std::vector<std::string> notices;
};

/// What one rank takes of a checkpoint, known before a byte moves.
class LoadPlan {
 public:
  virtual ~LoadPlan() = default;
  /// Reads the tables, no tensors. A checkpoint that stores a tied pair of tensors twice is compared in both by the rank of place
  /// zero alone.
  [[nodiscard]] static Result<std::unique_ptr<LoadPlan>> Make(const LoadOptions& options, const Hooks& hooks = {});

  /// Sorted by name.
  [[nodiscard]] virtual const std::vector<LiveTensor>& tensors() const = 0;
  /// What was assumed, cast or left out.
  [[nodiscard]] virtual const std::vector<std::string>& notices() const = 0;
  /// Reads this rank's byte ranges and no others into the buffers. kUsage names together what is missing, what nobody asked for, and what has
  /// another shape, type or size; then nothing was touched. After another error the buffers hold some new and some old values.
  /// May be called again. Buffers must not overlap.
  [[nodiscard]] virtual Result<LoadReport> ReadInto(std::span<const LiveBuffer> buffers, const ReadIntoOptions& options, const Hooks& hooks = {}) = 0;
};

}  // namespace crossdock
