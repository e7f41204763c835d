// SPDX-License-Identifier: Apache-2.0
/// \file  Iterations in the zarr format that Megatron-Core wrote until 0.15 (`sharded_backend: zarr`), read only.
/// On disk (FORMAT.md, 3; megatron-core 0.12.1, dist_checkpointing/strategies/zarr.py): a directory a tensor, named by its
/// key, with `.zarray` and chunk files; `KEY.sync/` holds lock files; objects are KEY/shard_<offsets>_<shape>.pt; beside them
/// lie metadata.json, common.pt and hf/, as in torch_dist.
/// What a reader's catalog holds: entries under their keys, slot kParam, raw chunks that cover the tensor exactly once (optimizer
/// state too: what torch_dist flattened lies here in its logical shape); object_refs "KEY/shard_0.1_2.4"; objects and side files as
/// formats/dcp/dcp.h says.
/// Errors: kIncomplete names missing chunks and arrays, kCorrupt, kUnsupported (compressed, nested, big-endian arrays), kUnsafe
/// (a symbolic link in place of an array, a chunk or an object). Threads: as formats/format.h says.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"

namespace crossdock::formats::zarr {

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenMegatronZarr(io::Storage& storage, const std::string& dir);

}  // namespace crossdock::formats::zarr
