// SPDX-License-Identifier: Apache-2.0
/// \file  The files of an iteration beside its tensors: metadata.json, common.pt, run_config.yaml, hf/.
/// On disk: FORMAT.md, 3. Errors: kCorrupt, kUnsafe, kUnsupported (another backend than torch_dist).
/// Threads: pure functions over a Storage.
#pragma once

#include <string>

#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::formats::dcp {

/// Loads metadata.json, common.pt, run_config.yaml and hf/config.json into catalog.objects and lists hf/ in catalog.side_files, as far
/// as they are there. A tensor of common.pt that is too large for an object stays without data, with a notice.
[[nodiscard]] Status LoadObjectFiles(io::Storage& storage, const std::string& dir, Catalog& catalog);

/// hf/config.json and the files of hf/ alone: what iterations of every Megatron format may carry.
[[nodiscard]] Status LoadHfFolder(io::Storage& storage, const std::string& dir, Catalog& catalog);

/// The torch file at `range` of `path` as a Value with its tensors' data.
[[nodiscard]] Result<Value> LoadItem(const io::ReadFile& file, ByteRange range);

}  // namespace crossdock::formats::dcp
