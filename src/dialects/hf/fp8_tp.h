// SPDX-License-Identifier: Apache-2.0
/// \file  What to know before an FP8 model is served: blocks that the edge of a weight cuts, and blocks that a tensor-parallel size of
/// the serving stack would cut. Loaders take neither, or take them wrongly; they say so late and seldom by name.
/// Which way a layer is cut is told by its name: outputs of attention and MLP by columns, projections into latents not at all, the
/// others by rows; fewer key heads than ranks are repeated.
/// Facts: vLLM fp8.py (validate_fp8_block_shape), SGLang fp8.py, transformers 5.24 (block = rows over rows of scales). Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

/// `weights` are the quantized ones. Lines for the summary, alike layers together; those of `--check-tp` too where it was asked for.
[[nodiscard]] std::vector<std::string> ServingNotices(const Fp8Options& fp8, const family::Model& model, const std::vector<Entry>& weights);

}  // namespace crossdock::dialects::hf
