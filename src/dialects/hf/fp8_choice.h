// SPDX-License-Identifier: Apache-2.0
/// \file  Which weights of a Hugging Face model are quantized: linear layers and experts; never embeddings, norms, routers and other
/// gates, heads, towers of other senses than text.
/// Three lists, all of which keep a weight as it is: the words that FP8 exporters of trainers look for anywhere in a name, so that
/// nothing is quantized that they leave alone; whole parts of a name that these words miss (`block_sparse_moe.gate`, `vision_tower`);
/// and what single families call by names that mean something else in others.
/// A loader joins some layers into one (q, k and v; gate and up; the experts of a layer) and cannot take a part of them quantized: these
/// stay together.
/// Facts: vLLM (packed_modules_mapping), SGLang, DeepSeek's FP8 notes. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "family/family_file.h"
#include "tensor/catalog.h"

namespace crossdock::dialects::hf {

/// Two axes of BF16, F16 or F32, some elements, and a name that ends in `.weight`.
[[nodiscard]] bool IsLinearWeight(const Entry& entry);

/// True when the weight `name` (as it is written) is one of those that are never quantized unasked.
[[nodiscard]] bool StaysUnquantized(const family::FamilyFile& family, std::string_view name);

/// What a loader joins with others, as one word for all of a group; empty: nothing. "model.layers.3.self_attn.qkv".
[[nodiscard]] std::string JoinedAs(std::string_view name);

/// `name` without its last `.weight`: the module that holds it.
[[nodiscard]] std::string_view ModuleOf(std::string_view name);
/// The last part of a module's path: "q_proj".
[[nodiscard]] std::string_view LastPart(std::string_view module);

}  // namespace crossdock::dialects::hf
