// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>

#include "base/checked_math.h"

namespace crossdock {
namespace {

struct Row {
  std::string_view name;
  int bits;
  bool floating;
};

constexpr std::array<Row, kDTypeCount> kRows = {{
    {"U64", 64, false}, {"I64", 64, false}, {"F64", 64, true},  {"C64", 64, false},
    {"F32", 32, true},  {"U32", 32, false}, {"I32", 32, false}, {"BF16", 16, true},
    {"F16", 16, true},  {"U16", 16, false}, {"I16", 16, false}, {"F8_E5M2FNUZ", 8, true},
    {"F8_E4M3FNUZ", 8, true}, {"F8_E8M0", 8, true}, {"F8_E4M3", 8, true}, {"F8_E5M2", 8, true},
    {"I8", 8, false},   {"U8", 8, false},   {"F6_E3M2", 6, true}, {"F6_E2M3", 6, true},
    {"F4", 4, true},    {"BOOL", 8, false},
}};

const Row& RowOf(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

int BitsOf(DType dtype) { return RowOf(dtype).bits; }
std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }
bool IsFloating(DType dtype) { return RowOf(dtype).floating; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::int64_t ElementSize(DType dtype) {
  CROSSDOCK_CHECK(BitsOf(dtype) % 8 == 0);
  return BitsOf(dtype) / 8;
}

Result<std::int64_t> ByteSize(DType dtype, const Shape& shape) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t count, ElementCount(shape));
  const auto bits = CheckedMul(count, BitsOf(dtype));
  if (!bits) {
    return MakeError(ErrorCode::kCorrupt, "the size of a tensor in bytes overflows")
        .WithFound("shape " + ToString(shape));
  }
  if (*bits % 8 != 0) {
    return MakeError(ErrorCode::kCorrupt, "sub-byte elements do not fill whole bytes")
        .WithExpected("a multiple of 8 bits")
        .WithFound(std::to_string(*bits) + " bits of " + std::string(DTypeName(dtype)));
  }
  return *bits / 8;
}

}  // namespace crossdock
