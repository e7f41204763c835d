// SPDX-License-Identifier: Apache-2.0
/// \file  Where MaxText keeps its layers: each in a subtree of its own (`decoder.layers_3.mlp.wi_0.kernel`), or scanned: stacked
/// along an axis (`decoder.layers.mlp.wi_0.kernel`). Decoders whose layers alternate scan blocks of `length` layers: layer b * length + j is
/// element b of `decoder.layers.layers_{j}`; those left over lie unstacked in `decoder.layers_remainder.layers_{j}`, where the model has that.
/// Qwen3-Next scans twice: of each block all layers but the last lie stacked in `local_layers`, the last one is `global_layer`; the blocks are stacked
/// then, along the same axis, so that a block's axis comes before that of the layers in it. What is left over are local layers of one block.
/// Where the first layers differ from the others (Ling 3: dense ones), the blocks that they lie in are not scanned: their layers keep the names that they have
/// by number, and the blocks behind them count from nothing.
/// Reference: MaxText 0.2.5, layers/nnx_decoders.py. The axis counts in the stacked tensor; where it has no such axis, layers come first.
/// Errors: kUnsupported for layers that do not stack; kUsage for a cycle that is no number. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "family/bind.h"

namespace crossdock::dialects::maxtext {

struct LayerForm {
  bool scanned = true;
  int axis = 1;                       ///< param_scan_axis
  bool operator==(const LayerForm&) const = default;
};

struct Cycle {
  std::int64_t length = 1;
  bool remainder = false;             ///< layers beyond whole blocks have a place
  std::string layer = "layers_";      ///< what comes before a layer's number in its block
  std::string local;                  ///< where a block's layers but the last are stacked; empty: each has its number
  std::string global;                 ///< then, the last one
  std::int64_t alone = 0;             ///< so many of the decoder's first layers keep their numbers; whole blocks
};
/// [maxtext] of a family file: `cycle` and `alone` (formulas over letters; what `alone` gives is rounded up to whole blocks), `remainder`, `layer`, `local` and
/// `global` (the latter two together).
/// `cycle` may also name a kind of layers: a block ends with its first layer of this kind then.
[[nodiscard]] Result<Cycle> CycleOf(const family::FamilyFile& family, const family::Model& model);

/// "decoder.moe_layers_12.self_attention.out.kernel" in its parts.
struct LayerName {
  std::string container;              ///< "moe_layers"
  std::int64_t number = 0;
  std::string rest;                   ///< "self_attention.out.kernel"
};
[[nodiscard]] std::optional<LayerName> ParseLayerName(std::string_view name);

/// The tensors of numbered layers, arranged as `form` says. Tensors that belong to no layer stay as they are.
[[nodiscard]] Result<std::vector<family::DialectTensor>> ArrangeLayers(std::vector<family::DialectTensor> numbered, const Cycle& cycle,
                                                                       const LayerForm& form);

/// The axis that layers get among those of one layer's tensor.
[[nodiscard]] int StackAxis(const Shape& of_layer, int scan_axis);

}  // namespace crossdock::dialects::maxtext
