// SPDX-License-Identifier: Apache-2.0
/// \file  What a torch_dist key means: a model tensor, a slot of it in the optimizer, a bucket, an object.
/// On-disk reference: Megatron-Core 0.12 to 0.19.2, `optimizer.state.<state>.<model key>`; the master copy is called
/// `param` under fully_reshardable and `fp32_param` elsewhere; `chained_N.` is stripped.
/// Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/slot.h"

namespace crossdock::dialects::mcore {

inline constexpr std::string_view kLayersPrefix = "decoder.layers.";
inline constexpr std::string_view kEmbeddingKey = "embedding.word_embeddings.weight";
inline constexpr std::string_view kHeadKey = "output_layer.weight";

struct TensorKey {
  enum class Kind : std::uint8_t {
    kModel,    ///< `slot` is kParam
    kState,    ///< a tensor of the optimizer in the model's space; `slot` is absent for states that have no slot
    kBucket,   ///< `optimizer.distributed...`: flat buffers, readable only with the run that wrote them
    kOther,    ///< something else of the optimizer
  };
  Kind kind = Kind::kModel;
  std::optional<Slot> slot;
  std::string state;       ///< "exp_avg", "fp32_param", ...
  std::string model_key;   ///< "decoder.layers.mlp.linear_fc1.weight"
  std::string prefix;      ///< what stands before `model_key`
};
[[nodiscard]] TensorKey ParseTensorKey(std::string_view key);

/// How the optimizer that reads the keys is divided among data-parallel ranks.
enum class OptimizerForm : std::uint8_t {
  kDistributed,  ///< Megatron's distributed optimizer, fully_reshardable
  kPlain,        ///< one that is not distributed, as Muon's: the master copy is called fp32_param
};
/// The key of a slot as this project writes it.
[[nodiscard]] std::string SlotKey(Slot slot, std::string_view model_key, OptimizerForm form = OptimizerForm::kDistributed);

enum class ObjectKind : std::uint8_t { kExtraState, kRng, kRerun, kCommon, kOptimizer, kOther };
[[nodiscard]] ObjectKind ClassifyObject(std::string_view name);

/// The two norms of a layer have two spellings: modules of their own in Megatron's local layers ("input_layernorm.weight"), parts of
/// the linear layer after them in TransformerEngine's ("self_attention.linear_qkv.layer_norm_weight"). Names of others stay.
/// True for singleton_local_shards: "...mlp.experts.experts.<number>.linear_fc1.weight_w".
[[nodiscard]] bool HasExpertNumber(std::string_view model_key);
/// The other names under which a tensor may be stored: Megatron's own layers and TransformerEngine's call norms differently, and
/// torch_dist of the former takes the latter's names, also where a layer has experts.
[[nodiscard]] std::vector<std::string> OtherSpellings(std::string_view name);
[[nodiscard]] std::string WithFusedNorms(std::string_view name);
[[nodiscard]] std::string WithOwnNorms(std::string_view name);
/// The norms inside multi-latent attention likewise: "q_layernorm.weight", "kv_layernorm.weight" in Megatron's own layers.
[[nodiscard]] std::string WithOwnLatentNorms(std::string_view name);

/// The key without what stands before a language model that is part of a larger one: "language_model.decoder.x" -> "decoder.x".
/// (Megatron-Bridge's models, Megatron-LM's LLaVA; LoongForge's say "foundation_model.".) Others stay.
[[nodiscard]] std::string_view WithinLanguageModel(std::string_view model_key);
/// True for what is part of a vision tower or of the projector behind it, or stands with them ("encoder_model.text_encoder."); the
/// first pipeline stage holds these.
[[nodiscard]] bool IsVision(std::string_view model_key);

/// Blocks of a tower that lie along the first axis, and Megatron-Bridge's mergers behind single blocks.
[[nodiscard]] bool IsStackOfTower(std::string_view model_key);

/// The layer number in "decoder.layers.<i>.rest", or nothing. This and the next also for a language model within a larger one.
[[nodiscard]] std::optional<std::int64_t> LayerNumber(std::string_view model_key);
/// "decoder.layers.<i>.rest" as it is called where layers lie along an axis: "decoder.layers.rest". REQUIRES: LayerNumber.
[[nodiscard]] std::string WithoutLayerNumber(std::string_view model_key);
/// True for "decoder.layers.rest" without a number: the first axis counts layers.
[[nodiscard]] bool HasLayerAxis(std::string_view model_key);

}  // namespace crossdock::dialects::mcore
