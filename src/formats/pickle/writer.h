// SPDX-License-Identifier: Apache-2.0
/// \file  WritePickle: a Value as a protocol-2 pickle with torch's spelling of tensors and dtypes.
/// On disk: FORMAT.md, 3 and 4. Uses only opcodes that torch.load(weights_only=True) knows, except NEWOBJ_EX for an
/// Opaque that was made so. Tensors become _rebuild_tensor_v2 (typed storages) or _v3 (types without a storage class);
/// their storages are handed back in order of first use and named "0", "1", ... A tensor that views a part of its
/// storage gets a storage of its own with just its elements; whole tensors that share `bytes` share the storage.
/// With `outside`, a tensor without data becomes a contiguous one whose storage's name is handed back: its content is
/// somebody else's matter. Errors: kUnsupported for another tensor whose data was not loaded, for types torch lacks, for an Opaque
/// that holds a persistent id (a complex128 tensor, say), integers beyond 2040 bits.
/// Invariant: equal Values (with equal sharing) give equal bytes. Threads: pure function.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/pickle/emitter.h"
#include "tensor/value.h"

namespace crossdock::formats::pickle {

struct Pickled {
  std::string bytes;
  std::vector<std::shared_ptr<const std::string>> storages;  ///< content of storage "0", "1", ...; null: outside
  std::vector<TensorValue> outside;                          ///< tensors whose content is elsewhere, in order of first use
};

enum class Outside : bool { kRefused, kAllowed };
[[nodiscard]] Result<Pickled> WritePickle(const Value& value, Outside outside = Outside::kRefused);

/// The row-major elements of a tensor whose storage is in `bytes`; `bytes` itself when they are that. kUnsupported when
/// there is no data, kCorrupt when the view leaves it.
[[nodiscard]] Result<std::shared_ptr<const std::string>> DenseBytes(const TensorValue& tensor);

/// The call that rebuilds a contiguous tensor with a storage of exactly its size under `key`.
/// REQUIRES: TorchName(dtype) is not empty, the element count was checked.
void EmitTensor(Emitter& out, DType dtype, const Shape& shape, std::string_view key);

}  // namespace crossdock::formats::pickle
