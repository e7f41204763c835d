// SPDX-License-Identifier: Apache-2.0
/// \file  Tensors in a pickle: the calls of torch._utils that rebuild them, read as data.
/// On disk (FORMAT.md, 3): _rebuild_tensor, _rebuild_tensor_v2 (typed storage), _rebuild_tensor_v3 (untyped storage and
/// dtype), _rebuild_parameter, _rebuild_parameter_with_state, _rebuild_from_type_v2 around one of these. The storage is
/// a persistent id ("storage", class, key, location, numel[, view]).
/// Invariant: a TensorValue returned lies within its storage: offset + sum((size-1) * stride) < numel.
/// Errors: kCorrupt for malformed arguments or a view that leaves its storage.
#pragma once

#include <optional>

#include "formats/pickle/graph.h"

namespace crossdock::formats::pickle {

/// The tensor an object node stands for; nothing when it is no tensor, or one of a type without a DType.
[[nodiscard]] Result<std::optional<TensorValue>> TensorFrom(const Graph& graph, NodeId object);

/// A tuple node of integers (or a torch.Size around one) as Dims; nothing when it is something else.
[[nodiscard]] Result<std::optional<Dims>> DimsFrom(const Graph& graph, NodeId node);

}  // namespace crossdock::formats::pickle
