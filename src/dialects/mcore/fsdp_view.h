// SPDX-License-Identifier: Apache-2.0
/// \file  A checkpoint of Megatron's own FSDP (`--use-megatron-fsdp --ckpt-format fsdp_dtensor`), seen by torch_dist's global keys.
/// Source: megatron-core 0.19.2, core/transformer/fsdp_dtensor_checkpoint.py, DistributedOptimizer.sharded_param_state_fsdp_dtensor and
/// training/checkpointing.py (preprocess_fsdp_dtensor_state_dict). A plain DCP of one dict: `model.module.decoder.layers.0...` are the
/// main weights in F32, a gated fc1 in two tensors (`weight_w` its gate, `weight_v` its up; its bias likewise), `optimizer.state.module.module....exp_avg`
/// the moments, and `optimizer.param_to_group_meta.<parameter>.<field>` says the group of every parameter. A run of 16 bits computes
/// with the main weights rounded: that is its model parameter, and the main weight its master, where it has moments.
/// Errors: kUnsupported for experts, for joined projections of other kinds that Megatron divides in such trees, and for optimizers other
/// than Adam; kIncomplete for half an fc1; kCorrupt for two tensors of one meaning and arguments of another number of layers. Threads: functions are pure.
#pragma once

#include "dialects/mcore/global_view.h"

namespace crossdock::dialects::mcore {

/// True for a catalog of a directory that such a run wrote, and for the one that is seen of it.
[[nodiscard]] bool IsMegatronFsdp(const Catalog& catalog);

[[nodiscard]] Result<GlobalView> SeeMegatronFsdp(const Catalog& source, const ViewOptions& options);

}  // namespace crossdock::dialects::mcore
