// SPDX-License-Identifier: Apache-2.0
/// \file  Megatron's `--ckpt-format torch_dcp`: what a rank's model_optim_rng.pt holds, saved by PyTorch DCP under torch's FSDP2.
/// On disk (megatron-core 0.19.2, training/checkpointing.py, `save_checkpoint`; torch 2.15, `_nested_dict.py`): the legacy dict of the one
/// model-parallel rank there is, its keys joined by dots, tensors divided among data-parallel ranks: `args`, `iteration`,
/// `model.decoder.layers.0.mlp.linear_fc1.weight`, `optimizer.optimizer.state.12.exp_avg`, `optimizer.fp32_from_fp16_params.0.3`.
/// Parameters' numbers count in the order of registration, which the order of keys in `.metadata` follows as long as one rank holds a part
/// of each: not a rule of the format, so whoever uses the numbers must prove them.
/// Errors: kUnsupported for ranks of other parallelism than that of data (they save different tensors under one name, of which one
/// survives), kIncomplete without arguments, which say so; kCorrupt for a key that is a value and a dict. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::dcp {

/// The file that the rank of such a checkpoint would have written, as the reader of legacy files names it.
inline constexpr const char* kRankFile = "mp_rank_00/model_optim_rng.pt";
/// objects[kByDcp] says that a catalog of legacy files was made here.
inline constexpr const char* kByDcp = "torch_dcp";

/// What Megatron saved by DCP other than torch_dist: under torch's FSDP2, or under its own (`fsdp_dtensor`).
enum class MegatronDcp : std::uint8_t { kTorchDcp, kFsdpDtensor };
/// By the keys that `.metadata` in `dir` names; nothing for others'.
[[nodiscard]] std::optional<MegatronDcp> LooksMegatronDcp(io::Storage& storage, const std::string& dir);

/// Turns the catalog of a plain DCP directory, with its objects "scalars" and "items", into that of one legacy rank: entries keep their
/// names and chunks, objects[kRankFile] is the nested dict with tensors that name their entries. `order`: keys as `.metadata` has them.
[[nodiscard]] Status MakeRankFile(const std::vector<std::string>& order, Catalog& catalog);

}  // namespace crossdock::formats::dcp
