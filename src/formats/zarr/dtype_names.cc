// SPDX-License-Identifier: Apache-2.0
#include "formats/zarr/dtype_names.h"

#include <algorithm>
#include <array>

namespace crossdock::formats::zarr {
namespace {

struct TypeNames {
  DType dtype;
  std::string_view v2;
  std::string_view v3;
};
/// v2 has NumPy's type strings, and the plain names that TensorStore and Megatron-Core give what NumPy has no letter for.
constexpr std::array kTypes = {
    TypeNames{DType::kF64, "<f8", "float64"},
    TypeNames{DType::kF32, "<f4", "float32"},
    TypeNames{DType::kF16, "<f2", "float16"},
    TypeNames{DType::kBF16, "bfloat16", "bfloat16"},
    TypeNames{DType::kI64, "<i8", "int64"},
    TypeNames{DType::kI32, "<i4", "int32"},
    TypeNames{DType::kI16, "<i2", "int16"},
    TypeNames{DType::kI8, "|i1", "int8"},
    TypeNames{DType::kU64, "<u8", "uint64"},
    TypeNames{DType::kU32, "<u4", "uint32"},
    TypeNames{DType::kU16, "<u2", "uint16"},
    TypeNames{DType::kU8, "|u1", "uint8"},
    TypeNames{DType::kBool, "|b1", "bool"},
    TypeNames{DType::kC64, "<c8", "complex64"},
    TypeNames{DType::kF8E4M3, "float8_e4m3fn", "float8_e4m3fn"},
    TypeNames{DType::kF8E5M2, "float8_e5m2", "float8_e5m2"},
    TypeNames{DType::kF8E4M3FNUZ, "float8_e4m3fnuz", "float8_e4m3fnuz"},
    TypeNames{DType::kF8E5M2FNUZ, "float8_e5m2fnuz", "float8_e5m2fnuz"},
};

std::optional<DType> Find(std::string_view TypeNames::*version, std::string_view name) {
  const auto at = std::ranges::find(kTypes, name, version);
  return at == kTypes.end() ? std::nullopt : std::optional<DType>(at->dtype);
}

std::optional<std::string_view> Name(std::string_view TypeNames::*version, DType dtype) {
  const auto at = std::ranges::find(kTypes, dtype, &TypeNames::dtype);
  return at == kTypes.end() ? std::nullopt : std::optional<std::string_view>((*at).*version);
}

}  // namespace

std::optional<DType> DTypeFromZarr(std::string_view name) { return Find(&TypeNames::v2, name); }
std::optional<DType> DTypeFromZarr3(std::string_view name) { return Find(&TypeNames::v3, name); }
std::optional<std::string_view> ZarrName(DType dtype) { return Name(&TypeNames::v2, dtype); }
std::optional<std::string_view> Zarr3Name(DType dtype) { return Name(&TypeNames::v3, dtype); }

}  // namespace crossdock::formats::zarr
