// SPDX-License-Identifier: Apache-2.0
/// \file  The tensors of a running trainer as a checkpoint: each chunk is a buffer in memory (FORMAT.md).
/// Reader and writer agree on one placement, so that what is written by the one can be read by the other. The bytes themselves
/// are reached through a BufferStorage (buffer_storage.h).
/// Errors: kUnsupported for tensors whose elements fill no whole bytes. Threads: as formats/format.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "formats/format.h"

namespace crossdock::formats::live {

/// The buffer of a chunk: the entry's name, and the number of the chunk where there are several.
[[nodiscard]] std::string BufferName(const Entry& entry, std::size_t chunk);

/// Gives every chunk its buffer. Chunks keep their order: file n is the n-th chunk of all entries.
[[nodiscard]] Result<Catalog> PlaceBuffers(Catalog catalog);

/// Lays out with PlaceBuffers; wants no checksums and writes no metadata.
[[nodiscard]] std::unique_ptr<CheckpointWriter> MakeLiveWriter();

/// Reads what PlaceBuffers placed. Objects of the catalog stay in it.
[[nodiscard]] Result<std::unique_ptr<CheckpointReader>> OpenLive(Catalog catalog);

}  // namespace crossdock::formats::live
