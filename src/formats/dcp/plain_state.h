// SPDX-License-Identifier: Apache-2.0
/// \file  What a plain PyTorch DCP directory holds beside its weights: counters, settings, the model's own files.
/// On disk (FORMAT.md, 4; upstream torch 2.15, torch/distributed/checkpoint/state_dict.py): an optimizer's step is a tensor
/// without axes for each parameter, a group's settings are bytes items (`optim.param_groups.0.lr`).
/// Errors: kCorrupt (a counter whose blob holds something else), kIo. Threads: pure functions over a Storage.
#pragma once

#include <string>

#include "formats/format.h"
#include "io/storage.h"

namespace crossdock::formats::dcp {

/// Reads into catalog.objects: "scalars", a dict key -> number of the tensors without axes that are counters or settings
/// (they are no entries then), and "items", a dict key -> Value of the bytes items of at most 1 MiB. An item that cannot be read
/// stays an object_ref alone, with a notice.
[[nodiscard]] Status LoadPlainState(io::Storage& storage, const std::string& dir, Catalog& catalog);

/// config.json of the directory, else of the one above, as objects["config.json"], and the files beside it as side files.
[[nodiscard]] Status LoadModelFiles(io::Storage& storage, const std::string& dir, Catalog& catalog);

}  // namespace crossdock::formats::dcp
