// SPDX-License-Identifier: Apache-2.0
/// \file  Torch files from before 1.6: five pickles, then raw storages.
/// On disk (FORMAT.md, 3): the long 0x1950a86a20f9469cfc6c; 1001; a dict with `little_endian`; the object; the list of
/// storage keys; then, in that order, an int64 count of elements and the data of each storage.
/// Errors and threads: as torch_file.h.
#pragma once

#include "formats/torch_zip/torch_file.h"

namespace crossdock::formats::torch_zip {

/// True when the range starts with the pickled magic number.
[[nodiscard]] bool LooksLikeLegacy(const RangeReader& range);

[[nodiscard]] Result<TorchFile> ReadLegacyFile(const RangeReader& range, const pickle::Limits& limits);

}  // namespace crossdock::formats::torch_zip
