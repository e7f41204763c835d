// SPDX-License-Identifier: Apache-2.0
/// \file  Expand: a Graph node as a Value tree. Shared references become copies, so the size is bounded.
/// What becomes what (FORMAT.md, 3): torch dtypes DType, torch.Size a tuple, OrderedDict an ordered Dict, tensors and
/// parameters TensorValue, _codecs.encode Bytes; sets, bytearrays and every other object an inert Opaque.
/// Errors: kUnsafe (too many values, too deep: the tree would be far larger than the file), kUnsupported (a structure
/// that contains itself), kCorrupt (a malformed tensor).
#pragma once

#include "formats/pickle/graph.h"
#include "formats/pickle/limits.h"

namespace crossdock::formats::pickle {

[[nodiscard]] Result<Value> Expand(const Graph& graph, NodeId root, const Limits& limits);

}  // namespace crossdock::formats::pickle
