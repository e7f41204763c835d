// SPDX-License-Identifier: Apache-2.0
/// \file  ReadPickle: one pickle of protocol 0 to 5 as a Value; a restricted reader that never runs anything.
/// On disk: FORMAT.md. Limits bound time, memory and depth, whatever the bytes say.
/// Errors: kCorrupt (malformed), kUnsafe (names or calls what no data needs, or unfolds without bound), kUnsupported
/// (valid, but not data of a checkpoint: INST, OBJ, EXT, text persistent ids, a structure containing itself).
/// Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/pickle/byte_source.h"
#include "formats/pickle/limits.h"
#include "tensor/value.h"

namespace crossdock::formats::pickle {

/// Reads the pickle at the source's place and leaves the source after its STOP.
[[nodiscard]] Result<Value> ReadPickle(ByteSource& source, const Limits& limits = {});
/// Reads a pickle from the start of `bytes`; what follows its STOP is ignored, as Python does.
[[nodiscard]] Result<Value> ReadPickle(std::string_view bytes, const Limits& limits = {});

}  // namespace crossdock::formats::pickle
