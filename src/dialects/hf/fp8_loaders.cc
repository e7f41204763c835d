// SPDX-License-Identifier: Apache-2.0
#include "dialects/hf/fp8_loaders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace crossdock::dialects::hf {
namespace {

constexpr const char* kVllm = "vllm serve \"TARGET\"   # vLLM or SGLang; not transformers";

/// Families whose class in transformers keeps the experts of a layer in one tensor, and makes it of no others.
struct KeptTogether {
  std::string_view family;
  bool blocks_only = false;   ///< rows and tensors go through compressed-tensors, which has experts one by one
  bool vllm = true;           ///< its loader takes experts one by one
};
constexpr std::array kKeptTogether = {KeptTogether{"gpt_oss", false, false}, KeptTogether{"qwen3_vl_moe"}, KeptTogether{"llama4", true}};

}  // namespace

std::optional<NotByTransformers> WhyNotTransformers(const family::FamilyFile& family, const Fp8Options& fp8) {
  using Strategy = Fp8Options::Strategy;
  const auto* fused = std::ranges::find(kKeptTogether, std::string_view(family.name), &KeptTogether::family);
  if (fused != kKeptTogether.end() && (!fused->blocks_only || !fp8.compressed_tensors)) {
    const std::string missing = fmt::format(
        "transformers 5.24 does not load these experts: its class for {} has all of a layer in one tensor, which it then fills at random, with a warning only", family.name);
    if (fused->vllm) return NotByTransformers{missing + "; vLLM and SGLang take them one by one", kVllm};
    return NotByTransformers{missing + "; no serving stack is known that takes them one by one", "crossdock convert \"TARGET\" OUT --to hf   # floating again: no loader of this form is known"};
  }
  if (fp8.strategy == Strategy::kTensor && !fp8.compressed_tensors) {
    return NotByTransformers{"one scale a tensor declared as `fp8` is for vLLM and SGLang: transformers 5.24 takes the codes for values, with a warning only", kVllm};
  }
  return std::nullopt;
}

}  // namespace crossdock::dialects::hf
