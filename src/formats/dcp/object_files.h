// SPDX-License-Identifier: Apache-2.0
/// \file  The files of an iteration beside its tensors: metadata.json, common.pt, run_config.yaml, train_state.pt, integrity.json, hf/.
/// On disk: FORMAT.md, 3. Errors: kCorrupt, kUnsafe, kUnsupported (another backend than the reader's).
/// Threads: pure functions over a Storage.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::dcp {

/// Loads metadata.json, common.pt, run_config.yaml, train_state.pt and hf/config.json into catalog.objects and lists hf/ in catalog.side_files, as far
/// as they are there. The checksums of integrity.json are compared, but those of data files and large ones; a notice counts them. A tensor of common.pt that is too large for an object stays without data, with a notice.
/// kUnsupported when metadata.json names another `backend`.
[[nodiscard]] Status LoadObjectFiles(io::Storage& storage, const std::string& dir, Catalog& catalog, std::string_view backend = "torch_dist");

/// The iteration in a directory's name: `iter_0000020` is 20, `release` is 0; nothing for another name.
[[nodiscard]] std::optional<std::int64_t> StepOfIteration(const std::string& dir);

/// hf/config.json and the files of hf/ alone: what iterations of every Megatron format may carry.
[[nodiscard]] Status LoadHfFolder(io::Storage& storage, const std::string& dir, Catalog& catalog);

/// The torch file at `range` of `path` as a Value with its tensors' data.
[[nodiscard]] Result<Value> LoadItem(const io::ReadFile& file, ByteRange range);

}  // namespace crossdock::formats::dcp
