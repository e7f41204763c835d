// SPDX-License-Identifier: Apache-2.0
/// \file  A Hugging Face directory before its weights are there: config.json and the index say enough to plan a conversion. Names and
/// files are the index's, shapes the family's rules', the dtype the configuration's; FP8 tensors are told by the scales beside them.
/// Errors: those of the index and the configuration; kIncomplete for a tensor that no rule gives a shape. Nothing is written.
#pragma once

#include <memory>

#include "convert/source.h"
#include "io/overlay_storage.h"

namespace crossdock::convert {

/// `storage` with the missing weight files laid over it; null when the source is no such directory, or any of its files is there.
[[nodiscard]] Result<std::unique_ptr<io::OverlayStorage>> OverPlannedShards(io::Storage& storage, const SourceRequest& request);

}  // namespace crossdock::convert
