// SPDX-License-Identifier: Apache-2.0
/// \file  quantization_config of an FP8 directory: what loaders read to learn which layers are FP8, and how.
/// Two forms. `fp8`: read by vLLM, SGLang and transformers (blocks). `compressed-tensors`: read by all three for rows and whole tensors.
/// Layers that are not FP8 are listed by their whole paths as they stand in the files, sorted, once each: vLLM compares them as a whole,
/// SGLang at dots, transformers as the start of a path or as its end; short patterns do nothing in one and too much in another.
/// Models of several parts are listed in both spellings of their prefixes, for loaders rename these before they look.
/// Facts: transformers 5.24 quantizers, compressed-tensors 0.20, vLLM fp8.py, SGLang fp8.py. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::hf {

/// Modules with a weight of two axes that is not FP8, and the head where it is only implied. `entries` are what is written.
[[nodiscard]] std::vector<std::string> UnquantizedModules(const HubState& hub, const std::vector<Entry>& entries);

/// `power_of_two`: every scale is one, which the config then says.
[[nodiscard]] Value QuantizationConfig(const Fp8Options& fp8, bool power_of_two, const std::vector<std::string>& unquantized);

/// What a directory's config.json lists must be what its tensors are: kCorrupt names the first that is not. For a directory that says
/// nothing of FP8 there is nothing to check.
[[nodiscard]] Status CheckFp8List(const Catalog& written);

}  // namespace crossdock::dialects::hf
