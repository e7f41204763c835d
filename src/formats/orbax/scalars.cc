// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/scalars.h"

#include <bit>
#include <cstdint>

namespace crossdock::formats::orbax {
namespace {

constexpr std::int64_t kMostElements = 1024;

Error NoForm(const std::string& name, const Value& row) {
  return MakeError(ErrorCode::kUnsupported, "a value has no form in an array").WithTensor(name).WithFound(Printable(ToJson(row, 0), 120));
}

void Append(std::uint64_t bits, std::int64_t size, std::string* out) {
  for (std::int64_t i = 0; i < size; ++i) out->push_back(static_cast<char>(bits >> (8 * static_cast<unsigned>(i)) & 0xFFU));
}

/// Nothing where the value does not fit the type.
bool AppendValue(DType dtype, const Value& value, std::string* out) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64: {
      const double* real = value.as_float();
      const std::int64_t* whole = value.as_int();
      if (real == nullptr && whole == nullptr) return false;
      const double number = real != nullptr ? *real : static_cast<double>(*whole);
      if (dtype == DType::kF64) return Append(std::bit_cast<std::uint64_t>(number), 8, out), true;
      return Append(std::bit_cast<std::uint32_t>(static_cast<float>(number)), 4, out), true;
    }
    case DType::kBool:
      if (value.as_bool() == nullptr) return false;
      return Append(*value.as_bool() ? 1 : 0, 1, out), true;
    case DType::kI32:
    case DType::kU32:
    case DType::kI64: {
      const std::int64_t* number = value.as_int();
      if (number == nullptr) return false;
      if (dtype == DType::kI32 && *number != static_cast<std::int32_t>(*number)) return false;
      if (dtype == DType::kU32 && *number != static_cast<std::int64_t>(static_cast<std::uint32_t>(*number))) return false;
      return Append(static_cast<std::uint64_t>(*number), ElementSize(dtype), out), true;
    }
    default: return false;
  }
}

bool IsSigned(DType dtype) { return dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kI16 || dtype == DType::kI8; }
bool IsUnsigned(DType dtype) { return dtype == DType::kU64 || dtype == DType::kU32 || dtype == DType::kU16 || dtype == DType::kU8; }

Value ElementValue(DType dtype, std::span<const std::byte> bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) bits |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  if (dtype == DType::kBool) return {bits != 0};
  if (dtype == DType::kF64) return {std::bit_cast<double>(bits)};
  if (dtype == DType::kF32) return {static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))};
  if (dtype == DType::kBF16) return {static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits << 16U)))};
  const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes.size());
  if (IsSigned(dtype) && unused < 64) bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << unused) >> unused);
  return {static_cast<std::int64_t>(bits)};
}

}  // namespace

bool IsCounter(const Entry& entry) {
  return entry.shape.empty() && (IsSigned(entry.dtype) || IsUnsigned(entry.dtype) || entry.dtype == DType::kBool);
}

bool IsRecorded(const Entry& entry) {
  if (entry.shape.empty()) return entry.dtype == DType::kF32 || entry.dtype == DType::kF64 || entry.dtype == DType::kBF16;
  const Result<std::int64_t> count = ElementCount(entry.shape);
  return IsUnsigned(entry.dtype) && count && *count <= kMostElements;
}

Value ValueRow(const Entry& entry, std::span<const std::byte> bytes) {
  const auto size = static_cast<std::size_t>(ElementSize(entry.dtype));
  ValueList values;
  for (std::size_t at = 0; at + size <= bytes.size(); at += size) values.push_back(ElementValue(entry.dtype, bytes.subspan(at, size)));
  ValueList shape;
  for (const std::int64_t extent : entry.shape) shape.emplace_back(extent);
  Value row = Value::MakeDict();
  row.Set("dtype", Value(DTypeName(entry.dtype)));
  row.Set("shape", Value::MakeList(std::move(shape)));
  row.Set("values", Value::MakeList(std::move(values)));
  return row;
}

Result<Constant> ConstantOf(const std::string& name, const Value& row) {
  const auto dtype = DTypeFromName(row.GetString("dtype").value_or(""));
  const Value* shape = row.Find("shape");
  const Value* values = row.Find("values");
  if (!dtype || shape == nullptr || shape->as_sequence() == nullptr || values == nullptr || values->as_sequence() == nullptr) return NoForm(name, row);
  Constant out;
  out.entry.name = name;
  out.entry.dtype = *dtype;
  for (const Value& size : *shape->as_sequence()) {
    if (size.as_int() == nullptr || *size.as_int() < 1 || *size.as_int() > kMostElements || out.entry.shape.size() == kMaxRank) return NoForm(name, row);
    out.entry.shape.push_back(*size.as_int());
  }
  if (CheckedCount(out.entry.shape) != static_cast<std::int64_t>(values->as_sequence()->size())) return NoForm(name, row);
  for (const Value& value : *values->as_sequence()) {
    if (!AppendValue(*dtype, value, &out.bytes)) return NoForm(name, row);
  }
  Chunk chunk;
  chunk.box = Box::Whole(out.entry.shape);
  out.entry.chunks.push_back(std::move(chunk));
  return out;
}

}  // namespace crossdock::formats::orbax
