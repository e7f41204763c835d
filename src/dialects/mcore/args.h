// SPDX-License-Identifier: Apache-2.0
/// \file  Megatron's arguments, both ways: what a checkpoint stores of them, and what a model's configuration says in
/// their words. A flat dict; the names are those of Megatron-LM's `args` (megatron-core 0.19.2).
/// Reference: megatron/training/checkpointing.py `load_args_from_checkpoint` for what `--use-checkpoint-args` reads.
/// Errors: kUnsupported names the setting that a family or Megatron cannot express. Threads: functions are pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "family/bind.h"
#include "family/family_file.h"
#include "family/model_config.h"
#include "tensor/catalog.h"

namespace crossdock::dialects::mcore {

/// Where Megatron-Bridge keeps what Megatron-LM has in its arguments.
inline constexpr const char* kRunConfig = "run_config.yaml";

/// The arguments that a checkpoint stores: common["args"] (a Namespace), else run_config.yaml's `model:` section
/// (Megatron-Bridge) with its names turned into those of `args`. Nothing when it stores neither.
struct StoredArgs {
  Value args = Value::MakeDict();
  std::string origin;      ///< "common.pt" or kRunConfig, for messages too
};
[[nodiscard]] std::optional<StoredArgs> ReadStoredArgs(const Catalog& catalog);
/// run_config.yaml alone, whether or not common.pt stores arguments too.
[[nodiscard]] std::optional<StoredArgs> ReadRunConfig(const Catalog& catalog);

/// The common state of a checkpoint: objects["common"], unwrapped; null when there is none.
[[nodiscard]] const Value* CommonState(const Catalog& catalog);

/// Refuses what a dense family cannot carry, by the name of the setting: LayerNorm, zero-centered norms,
/// biases, other activations, experts, multi-latent attention.
[[nodiscard]] Status CheckExpressible(const Value& args, const family::FamilyFile& family, const std::string& origin);

/// The arguments that describe the architecture, from a configuration in either dialect's words. With "mcore" words
/// they are passed on. kUnsupported for what Megatron has no argument for (rope types, activations, biases).
[[nodiscard]] Result<Value> ArgsFromConfig(const family::FamilyFile& family, const family::Model& model, const family::ModelConfig& config);

/// "--set ARG=VALUE": True, False, None, a number, else a string.
[[nodiscard]] Value ParseArgument(std::string_view text);

/// Whether embedding and head are one weight: Megatron's default where the arguments do not say.
[[nodiscard]] bool TiesEmbeddings(const Value& args);

/// Whether the first matrix of an MLP is [gate; up], by any of the words for it; so where the arguments say nothing.
[[nodiscard]] bool HasGatedMlp(const Value& args);

}  // namespace crossdock::dialects::mcore
