// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/torch_names.h"

#include <array>

namespace crossdock::formats::pickle {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view storage;
};

constexpr auto kRows = std::to_array<Row>({
    {DType::kF64, "float64", "DoubleStorage"},
    {DType::kF32, "float32", "FloatStorage"},
    {DType::kF16, "float16", "HalfStorage"},
    {DType::kBF16, "bfloat16", "BFloat16Storage"},
    {DType::kI64, "int64", "LongStorage"},
    {DType::kI32, "int32", "IntStorage"},
    {DType::kI16, "int16", "ShortStorage"},
    {DType::kI8, "int8", "CharStorage"},
    {DType::kU8, "uint8", "ByteStorage"},
    {DType::kBool, "bool", "BoolStorage"},
    {DType::kC64, "complex64", "ComplexFloatStorage"},
    {DType::kU64, "uint64", ""},
    {DType::kU32, "uint32", ""},
    {DType::kU16, "uint16", ""},
    {DType::kF8E4M3, "float8_e4m3fn", ""},
    {DType::kF8E5M2, "float8_e5m2", ""},
    {DType::kF8E4M3FNUZ, "float8_e4m3fnuz", ""},
    {DType::kF8E5M2FNUZ, "float8_e5m2fnuz", ""},
    {DType::kF8E8M0, "float8_e8m0fnu", ""},
});

}  // namespace

std::optional<DType> DTypeFromTorch(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromStorageClass(std::string_view name) {
  for (const Row& row : kRows) {
    if (!name.empty() && row.storage == name) return row.dtype;
  }
  return std::nullopt;
}

std::string_view TorchName(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row.name;
  }
  return {};
}

std::string_view StorageClassName(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row.storage;
  }
  return {};
}

}  // namespace crossdock::formats::pickle
