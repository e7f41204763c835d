// SPDX-License-Identifier: Apache-2.0
/// \file  Megatron's legacy iterations (`--ckpt-format torch`), read and written: one torch file a model-parallel rank.
/// On disk: FORMAT.md. What a catalog holds, both ways:
///  - entries: every tensor of every file as `<rank dir>/<file>#<path>`, slot kParam (see tensor_paths.h);
///  - objects["<rank dir>/<file>"]: the file's object; a TensorValue in it without `bytes` is the entry that its
///    `storage` names; one with `bytes` (small state) lies in the object alone. "hf/config.json" where ITER/hf has one.
///  - side_files: what lies in ITER/hf, under "hf/...", as copies.
/// Entries that are read have one kRaw chunk for each contiguous piece of their view; those that are written have one.
/// Errors: kIncomplete (a rank without its file), kCorrupt, kUnsafe (the pickle), kUnsupported (ancient forms, views in too
/// many pieces). Threads: as formats/format.h says.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"

namespace crossdock::formats::mp_rank {

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenMpRank(io::Storage& storage, const std::string& dir);

/// Takes catalogs as described above: entries with one chunk each, each standing once in its file's object.
[[nodiscard]] std::unique_ptr<CheckpointWriter> MakeMpRankWriter();

}  // namespace crossdock::formats::mp_rank
