// SPDX-License-Identifier: Apache-2.0
/// \file  Torch's names of element types: dtypes (`torch.bfloat16`) and storage classes (`torch.BFloat16Storage`).
/// On disk (FORMAT.md, 3). Types without a storage class (8-bit floats, unsigned integers) are stored untyped.
/// complex128 and the quantized types have no DType; objects of them stay Opaque.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace crossdock::formats::pickle {

[[nodiscard]] std::optional<DType> DTypeFromTorch(std::string_view name);       ///< "bfloat16"
[[nodiscard]] std::optional<DType> DTypeFromStorageClass(std::string_view name);  ///< "BFloat16Storage"
/// Empty for types torch does not have (the 6-bit floats, 4-bit ones as safetensors counts them).
[[nodiscard]] std::string_view TorchName(DType dtype);
/// Empty for types without a storage class.
[[nodiscard]] std::string_view StorageClassName(DType dtype);

}  // namespace crossdock::formats::pickle
