// SPDX-License-Identifier: Apache-2.0
/// \file  Checkpoints in safetensors: a Hugging Face directory, full-state safetensors, or a single file.
/// On disk: FORMAT.md beside this file; upstream safetensors 0.8.0, transformers 5.24, huggingface_hub 2.4.
/// Invariants of a read catalog: names are those of the headers and slots are kParam (what `param/` or `optim/adam_mu/`
/// means is the dialect's business); each entry is one kRaw chunk; `files` are the weight files in numeric order.
/// Set in `objects`, where they exist: "config.json"; "__metadata__" (all files' metadata, merged); "meta": a dict
/// `meta/step` -> integer, for full-state files: such one-element tensors are read, and are no entries.
/// `side_files` holds everything that travels with the weights (FORMAT.md, 5) as copies by path.
/// Errors: kCorrupt (bytes against the format), kIncomplete (a shard or a listed tensor is missing; several candidates and
/// no index, all named), kUnsafe (a path that leaves the directory), kUnsupported (other weight files, by name).
/// Threads: as formats/format.h says.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/format.h"

namespace crossdock::formats::safetensors {

/// Opens a directory, a .safetensors file, an index file, or a hub-cache model folder. Reads headers only.
/// `storage` must outlive nothing: the reader keeps no file open.
[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenSafetensors(io::Storage& storage, const std::string& path);

/// True for `shard-00001-model-00001-of-00002.safetensors`: what one rank wrote through DCP's HuggingFaceStorageWriter.
[[nodiscard]] bool IsShardName(std::string_view name);

/// Opens a directory of such files (FORMAT.md, 6): each tensor has a chunk a file, placed by the files' DCP_SHARDING_INFO.
/// kCorrupt: no such information, chunks that overlap, dtypes that differ; kIncomplete: a gap.
[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenShardedSafetensors(io::Storage& storage, const std::string& dir);

/// The tensor name -> file order of the directory's index, or of its single file's header in offset order. For
/// `--hf-template`, where weights need not be there: empty when the directory has none.
[[nodiscard]] Result<std::vector<std::string>> ReadTensorOrder(io::Storage& storage, const std::string& dir);

/// The side files of a directory (FORMAT.md, 5), without its config.json. Adds what was skipped to `notices`.
[[nodiscard]] Result<std::vector<SideFile>> ListSideFiles(io::Storage& storage, const std::string& dir,
                                                          std::vector<std::string>* notices);

/// A folder `models--org--name` of the hub cache: the snapshot that refs/main names. Any other path is returned as is.
[[nodiscard]] Result<std::string> ResolveHubCache(io::Storage& storage, const std::string& path);

/// True when the weights at `path` (as OpenSafetensors takes it) are full-state safetensors, told by the index's or the
/// first header's names and metadata. False also when nothing can be read: opening will say why.
[[nodiscard]] bool LooksFullState(io::Storage& storage, const std::string& path);

struct WriterOptions {
  std::int64_t max_shard_bytes = 5'000'000'000;
  std::vector<std::string> order;   ///< names in the order in which shards are filled; the rest follow by name
  std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};  ///< of every file; may be empty
  std::string stem = "model";       ///< model.safetensors, model-00001-of-00002.safetensors, ...
  /// Name -> the tensor that it follows into its shard, whatever `order` says: a scale and its weight. Together they count as one.
  std::map<std::string, std::string> follows;
  bool always_index = false;        ///< an index also where one file holds everything
};

/// Writes the bytes of `safetensors.torch.save_file` into each file, cut into shards as huggingface_hub does, with the
/// index as transformers writes it when there is more than one. `objects["meta"]` of the target (a dict `meta/step` ->
/// integer) becomes 0-d I64 tensors whose bytes lie in frames; they are no entries. Side files are the caller's.
[[nodiscard]] std::unique_ptr<CheckpointWriter> MakeSafetensorsWriter(WriterOptions options);

}  // namespace crossdock::formats::safetensors
