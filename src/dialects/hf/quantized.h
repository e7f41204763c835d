// SPDX-License-Identifier: Apache-2.0
/// \file  Quantized Hugging Face sources: which stored tensors together are one floating weight.
/// FP8: `X.weight` of F8_E4M3 or F8_E5M2 with its scales beside it, under the first of these names that is there:
/// `X.weight_scale_inv` (DeepSeek-V3, transformers; a multiplier in spite of its name), `X.weight_scale` (compressed-tensors),
/// `X.scale` (DeepSeek-V4). One scale for the tensor, for each row, or for each block; blocks at the edge may be smaller.
/// MXFP4: `X_blocks` and `X_scales` make `X` (gpt-oss); transformers turns the last two axes round, so do we.
/// The block is that of config.json; where it says none, 128 x 128 if the scales fit that, else what divides evenly.
/// Facts: transformers 5.24 integrations/finegrained_fp8.py and mxfp4.py, compressed-tensors 0.20.
/// Errors name the tensor, what was looked for and what was found. Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "expr/dequantize.h"
#include "tensor/catalog.h"
#include "tensor/value.h"

namespace crossdock::dialects::hf {

/// What config.json says of quantized weights.
struct Quantization {
  std::string method;                          ///< quant_method; empty: nothing is said
  std::optional<expr::BlockFormat> block;
  DType dtype = DType::kBF16;                  ///< of the dequantized weights: `dtype`, `torch_dtype`, else BF16
  bool allow_unscaled = false;                 ///< the user said so: codes without scales are values
};

/// kUnsupported for methods that are not read (INT4 and INT8 packings, ...), kCorrupt for a block that is none.
[[nodiscard]] Result<Quantization> ReadQuantization(const Value& config);

/// A weight made of stored tensors, and the entries that make it.
struct Dequantized {
  expr::Expr expr;
  std::vector<std::int32_t> entries;
  std::string form;                            ///< "F8_E4M3, blocks of 128 x 128", for the summary
  bool assumed_block = false;                  ///< config.json does not say the block, and the scales leave a choice
};

[[nodiscard]] bool IsFp8Weight(const Entry& entry);

/// The FP8 weight `at` with its scales. kIncomplete when it has none: a bare cast of the codes would be another model (user
/// case B96), unless the user allows it. REQUIRES: IsFp8Weight.
[[nodiscard]] Result<Dequantized> ReadFp8(const Catalog& source, std::int32_t at, const Quantization& how);

/// The tensor `name` (with the source's prefix) of MXFP4 blocks and scales; nothing when the source has no such blocks.
[[nodiscard]] Result<std::optional<Dequantized>> ReadMxfp4(const Catalog& source, const std::string& name, const Quantization& how);

/// Why a scale that belongs to no weight stays behind ("" when the name is none): those of activations and of the KV cache.
[[nodiscard]] std::string_view ActivationScaleReason(std::string_view name);

}  // namespace crossdock::dialects::hf
