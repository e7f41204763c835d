// SPDX-License-Identifier: Apache-2.0
/// \file  Orbax checkpoints: the two ends of the interface.
/// On disk: FORMAT.md. A reader's catalog holds, with format "orbax":
/// entries: one an array leaf, named by its key path joined with "." (`params.params.decoder.norm.scale`), slot kParam; a chunk is raw
/// where the stored bytes are its elements, else kEncoded. `root` is the step's directory, or that of a flat checkpoint; `step` its number.
/// objects["tree"]: the tree (tree.h); objects["custom_metadata"]: that of `_CHECKPOINT_METADATA`, absent when there is none;
/// objects["orbax"]: Dict {"item", "handler" (class path of the item), "ocdbt", "zarr3"}: as found, or as it is to be written; to be
/// written also "commit_marker" (absent: true) and "zstd_level": 0 or absent, chunks as they are; 1 to 22: each chunk one zstd frame (kEncoded, see formats/format.h).
/// objects["scalars"]: counters by value (scalars.h); "hf/config.json" and the side files of `hf/` in the step.
/// Items that Tunix saves apart (model_params, optimizer_state) are one catalog: names, files and rows begin with the item's name,
/// "orbax" has "items", and custom metadata that lies in an item of its own is found there.
/// A writer takes the same from the target's catalog (objects["orbax"] or any member of it may be absent: "items", v0's handler, true,
/// true) and leaves `step` to whoever names the directory. Chunks of zeros are stored too.
/// Errors of the reader: kIncomplete (temporary names, no tree, arrays or chunks that are missing), kUnsupported (by name: msgpack
/// files, codecs, types), kCorrupt, kUnsafe. Of the writer: kUnsupported for chunks that are no regular grid, types that zarr has no
/// name for, names that no key can hold. Threads: as formats/format.h says.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"

namespace crossdock::formats::orbax {

/// A step, an item in a step, or a flat checkpoint.
[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenOrbax(io::Storage& storage, const std::string& path);

[[nodiscard]] std::unique_ptr<CheckpointWriter> MakeOrbaxWriter();

/// A step of several items: objects["orbax"] has "items", their names, instead of "item"; names of entries and values, and the paths of
/// rows, begin with that of their item (`model_params.decoder.norm.scale`).
[[nodiscard]] std::unique_ptr<CheckpointWriter> MakeOrbaxStepWriter();

/// The class paths that items are saved under; Orbax only warns of others.
inline constexpr std::string_view kPyTreeHandler = "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler";

}  // namespace crossdock::formats::orbax
