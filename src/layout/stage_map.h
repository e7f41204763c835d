// SPDX-License-Identifier: Apache-2.0
/// \file  Which layers each pipeline stage holds, chunk by chunk: what a ParallelLayout means for a model of N layers.
/// Source of the rules: megatron-core 0.19.2, get_num_layers_to_build, get_transformer_layer_offset,
/// PipelineParallelLayerLayout and what TransformerConfig and arguments.py refuse (checked in tests/golden/layout).
/// Invariants: chunk v of stage p stands at v * pp + p; going through the chunks in this order meets every layer once, in
/// ascending order; chunks may be empty of layers. Megatron builds the embedding in the first chunk of the first stage and
/// the final norm and head in the last chunk of the last one, under every layout.
/// Errors: kUsage with the arithmetic and the flags of a layout that is possible for this number of layers.
#pragma once

#include <cstdint>
#include <vector>

#include "crossdock/result.h"
#include "layout/parallel_layout.h"

namespace crossdock::layout {

struct StageMap {
  struct ModelChunk {
    int stage = 0;
    int index = 0;                  ///< virtual stage, 0 .. vpp-1
    std::int64_t first = 0;         ///< global number of its first layer
    std::int64_t count = 0;
    bool embedding = false;
    bool head = false;              ///< final norm, output layer, loss
    bool operator==(const ModelChunk&) const = default;
  };
  int pp = 1;
  int vpp = 1;
  std::vector<ModelChunk> chunks;

  [[nodiscard]] const ModelChunk& At(int stage, int index) const;
  /// The chunk that holds a layer; a number beyond the model's is the last chunk's.
  [[nodiscard]] const ModelChunk& ChunkOf(std::int64_t layer) const;
  [[nodiscard]] int StageOf(std::int64_t layer) const { return chunks.empty() ? 0 : ChunkOf(layer).stage; }
  [[nodiscard]] int HeadStage() const { return pp - 1; }
  /// Layers of every chunk in their order, as PipelineLayoutString takes them.
  [[nodiscard]] std::vector<std::int64_t> Counts() const;
};

/// Layers of multi-token prediction (m of a layout string) are no decoder layers: see FindMtp in pipeline_layout.h.
[[nodiscard]] Result<StageMap> MakeStageMap(const ParallelLayout& layout, std::int64_t layers);

}  // namespace crossdock::layout
