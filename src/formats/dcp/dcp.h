// SPDX-License-Identifier: Apache-2.0
/// \file  Megatron-Core torch_dist iterations and plain PyTorch DCP directories, read and written.
/// On disk (FORMAT.md): `.metadata` (a pickle), `*.distcp` (concatenated torch zips), `metadata.json`, `common.pt`.
/// What a reader's catalog holds:
///  - entries: every tensor under its DCP key as it is, slot kParam; chunks are kTorchBlob, cover the tensor exactly
///    once (of identical replicated chunks the first is kept) and lie within their files;
///  - flattened_entries: names of the entries that are flattened optimizer shards (Megatron-Core <= 0.15): grids of blocks;
///  - object_refs: the bytes items, except the common state, which is loaded;
///  - objects: "common" (common.pt, else the item `common_state/shard_0_1`), "metadata.json", "run_config.yaml", "hf/config.json";
///  - side_files: what lies in ITER/hf, under "hf/...", as copies.
/// OpenPlainDcp reads a directory without Megatron's files; its catalog holds besides entries and object_refs:
///  - objects: "scalars" and "items" (plain_state.h), "config.json" of the directory or the one above;
///  - side files: what lies beside that config.json.
/// OpenTorchDcp reads what Megatron saves under torch's FSDP2; its catalog is that of a legacy rank (torch_dcp.h). OpenFsdpDtensor reads what it
/// saves under its own FSDP: entries as they are, objects "scalars", "items" (plain_state.h) and "fsdp_dtensor" (true).
/// What a writer takes: chunks with `shard` R go to `__R_0.distcp`; objects["object:<key>"] become bytes items,
/// objects["common"] common.pt, objects["metadata.json"] metadata.json (the standard one when absent). A plain writer makes
/// `.metadata` alone: objects["scalar:<key>"] (a TensorValue with bytes) become tensors that are no entries, and
/// objects["planner_data"] (key -> path as a tuple) is what torch rebuilds nested dicts from.
/// Errors: kIncomplete (missing .distcp files, with the keys and ranges that need them; no metadata), kCorrupt,
/// kUnsafe (a pickle that names what must not run, a path that leaves the directory), kUnsupported (transformed
/// blobs, big-endian or compressed data).
/// Threads: as formats/format.h says.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"

namespace crossdock::formats {

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenDcp(io::Storage& storage, const std::string& dir);

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenPlainDcp(io::Storage& storage, const std::string& dir);

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenTorchDcp(io::Storage& storage, const std::string& dir);

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenFsdpDtensor(io::Storage& storage, const std::string& dir);

enum class DcpFlavour { kMegatron, kPlain };
[[nodiscard]] std::unique_ptr<CheckpointWriter> MakeDcpWriter(DcpFlavour flavour = DcpFlavour::kMegatron);

}  // namespace crossdock::formats
