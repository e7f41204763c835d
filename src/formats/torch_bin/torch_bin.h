// SPDX-License-Identifier: Apache-2.0
/// \file  A Hugging Face directory whose weights are pytorch_model.bin: read only.
/// On disk: FORMAT.md beside this file.
/// Invariants of a read catalog: as safetensors.h says; an entry has one kRaw chunk for each contiguous piece of its view.
/// Errors: kCorrupt, kUnsafe (the pickle), kIncomplete (a shard is missing), kUnsupported (values that are no tensors).
/// Threads: as formats/format.h says.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"

namespace crossdock::formats::torch_bin {

/// True when `dir` holds pytorch_model.bin, or its index, and no safetensors.
[[nodiscard]] bool IsTorchBin(io::Storage& storage, const std::string& dir);

[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenTorchBin(io::Storage& storage, const std::string& dir);

}  // namespace crossdock::formats::torch_bin
