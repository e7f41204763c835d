// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/opcode.h"

#include <array>
#include <bit>
#include <cstdio>
#include <utility>

#include "base/endian.h"

namespace crossdock::formats::pickle {
namespace {

enum class Argument : std::uint8_t {
  kUnknown, kNone, kU8, kU16, kI32, kU32, kU64, kF64, kLine, kTwoLines, kCount1, kCount4, kCount8,
};

constexpr std::array<Argument, 256> MakeTable() {
  std::array<Argument, 256> table{};
  const auto set = [&table](Argument argument, auto... ops) { ((table[static_cast<std::size_t>(ops)] = argument), ...); };
  using enum Op;
  set(Argument::kNone, kMark, kStop, kPop, kPopMark, kDup, kNone, kBinPersId, kReduce, kAppend, kBuild, kDict, kEmptyDict,
      kAppends, kList, kEmptyList, kObj, kSetItem, kTuple, kEmptyTuple, kSetItems, kNewObj, kTuple1, kTuple2, kTuple3,
      kNewTrue, kNewFalse, kEmptySet, kAddItems, kFrozenSet, kNewObjEx, kStackGlobal, kMemoize, kNextBuffer,
      kReadOnlyBuffer);
  set(Argument::kU8, kBinInt1, kBinGet, kBinPut, kProto, kExt1);
  set(Argument::kU16, kBinInt2, kExt2);
  set(Argument::kI32, kBinInt, kExt4);
  set(Argument::kU32, kLongBinGet, kLongBinPut);
  set(Argument::kU64, kFrame);
  set(Argument::kF64, kBinFloat);
  set(Argument::kLine, kFloat, kInt, kLong, kPersId, kString, kUnicode, kGet, kPut);
  set(Argument::kTwoLines, kGlobal, kInst);
  set(Argument::kCount1, kShortBinString, kLong1, kShortBinBytes, kShortBinUnicode);
  set(Argument::kCount4, kBinString, kBinUnicode, kLong4, kBinBytes);
  set(Argument::kCount8, kBinUnicode8, kBinBytes8, kByteArray8);
  return table;
}
constexpr std::array<Argument, 256> kArgumentOf = MakeTable();

/// A little-endian unsigned integer of 1, 2, 4 or 8 bytes, as it is. Above int64 it becomes negative: as a count it is
/// then refused by Take.
Result<std::int64_t> TakeUnsigned(ByteSource& source, std::int64_t width) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view raw, source.Take(width));
  std::uint64_t value = 0;
  for (std::size_t i = raw.size(); i-- > 0;) value = (value << 8U) | static_cast<std::uint8_t>(raw[i]);
  return static_cast<std::int64_t>(value);
}

Result<std::string_view> TakeCounted(ByteSource& source, std::int64_t width) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t count, TakeUnsigned(source, width));
  return source.Take(count);
}

}  // namespace

Result<Instruction> InstructionReader::Next() {
  Instruction out;
  out.offset = source_.offset();
  CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view code, source_.Take(1));
  out.op = static_cast<Op>(static_cast<std::uint8_t>(code[0]));
  switch (kArgumentOf[static_cast<std::uint8_t>(code[0])]) {
    case Argument::kUnknown:
      return MakeError(ErrorCode::kCorrupt, "a pickle has an unknown opcode " + DescribeOp(out.op))
          .WithPath(source_.path()).WithOffset(source_.InFile(out.offset));
    case Argument::kNone: break;
    case Argument::kU8: { CROSSDOCK_ASSIGN_OR_RETURN(out.number, TakeUnsigned(source_, 1)); break; }
    case Argument::kU16: { CROSSDOCK_ASSIGN_OR_RETURN(out.number, TakeUnsigned(source_, 2)); break; }
    case Argument::kU32: { CROSSDOCK_ASSIGN_OR_RETURN(out.number, TakeUnsigned(source_, 4)); break; }
    case Argument::kU64: { CROSSDOCK_ASSIGN_OR_RETURN(out.number, TakeUnsigned(source_, 8)); break; }
    case Argument::kI32: {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view raw, source_.Take(4));
      out.number = LoadLittle<std::int32_t>(raw.data());
      break;
    }
    case Argument::kF64: {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view raw, source_.Take(8));
      out.real = std::bit_cast<double>(LoadBig64(raw.data()));
      break;
    }
    case Argument::kLine: { CROSSDOCK_ASSIGN_OR_RETURN(out.text, source_.TakeLine()); break; }
    case Argument::kTwoLines: {
      CROSSDOCK_ASSIGN_OR_RETURN(const std::string_view first, source_.TakeLine());
      first_line_ = first;
      out.module = first_line_;
      CROSSDOCK_ASSIGN_OR_RETURN(out.text, source_.TakeLine());
      break;
    }
    case Argument::kCount1: { CROSSDOCK_ASSIGN_OR_RETURN(out.text, TakeCounted(source_, 1)); break; }
    case Argument::kCount4: { CROSSDOCK_ASSIGN_OR_RETURN(out.text, TakeCounted(source_, 4)); break; }
    case Argument::kCount8: { CROSSDOCK_ASSIGN_OR_RETURN(out.text, TakeCounted(source_, 8)); break; }
  }
  return out;
}

std::string DescribeOp(Op op) {
  const auto code = static_cast<unsigned>(op);
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), code > 32 && code < 127 ? "`%c` (0x%02x)" : "%.0d0x%02x",
                static_cast<int>(code > 32 && code < 127 ? code : 0U), code);
  return text.data();
}

}  // namespace crossdock::formats::pickle
