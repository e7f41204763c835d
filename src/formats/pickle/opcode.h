// SPDX-License-Identifier: Apache-2.0
/// \file  The opcodes of pickle protocols 0 to 5 and their arguments, decoded one by one.
/// On disk (FORMAT.md, 1; upstream CPython 3.13, Lib/pickle.py): one byte, then an argument whose form the opcode
/// decides: nothing, a little-endian integer, a big-endian double, text up to a newline, or counted bytes.
/// Errors: kCorrupt for an unknown opcode or a truncated argument. Threads: one reader, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "crossdock/result.h"
#include "formats/pickle/byte_source.h"

namespace crossdock::formats::pickle {

enum class Op : std::uint8_t {
  kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDup = '2', kFloat = 'F', kInt = 'I', kBinInt = 'J',
  kBinInt1 = 'K', kLong = 'L', kBinInt2 = 'M', kNone = 'N', kPersId = 'P', kBinPersId = 'Q', kReduce = 'R',
  kString = 'S', kBinString = 'T', kShortBinString = 'U', kUnicode = 'V', kBinUnicode = 'X', kAppend = 'a',
  kBuild = 'b', kGlobal = 'c', kDict = 'd', kEmptyDict = '}', kAppends = 'e', kGet = 'g', kBinGet = 'h', kInst = 'i',
  kLongBinGet = 'j', kList = 'l', kEmptyList = ']', kObj = 'o', kPut = 'p', kBinPut = 'q', kLongBinPut = 'r',
  kSetItem = 's', kTuple = 't', kEmptyTuple = ')', kSetItems = 'u', kBinFloat = 'G',
  kProto = 0x80, kNewObj, kExt1, kExt2, kExt4, kTuple1, kTuple2, kTuple3, kNewTrue, kNewFalse, kLong1, kLong4,
  kBinBytes = 'B', kShortBinBytes = 'C',
  kShortBinUnicode = 0x8c, kBinUnicode8, kBinBytes8, kEmptySet, kAddItems, kFrozenSet, kNewObjEx, kStackGlobal,
  kMemoize, kFrame, kByteArray8, kNextBuffer, kReadOnlyBuffer,
};

struct Instruction {
  Op op = Op::kStop;
  std::int64_t offset = 0;    ///< of the opcode in its source
  std::int64_t number = 0;    ///< integer arguments
  double real = 0;            ///< of kBinFloat
  std::string_view text;      ///< counted bytes, or the (last) line; valid until the next instruction
  std::string_view module;    ///< first of two lines
};

class InstructionReader {
 public:
  explicit InstructionReader(ByteSource& source) : source_(source) {}
  [[nodiscard]] Result<Instruction> Next();
  [[nodiscard]] ByteSource& source() { return source_; }

 private:
  ByteSource& source_;
  std::string first_line_;
};

/// "`R` (0x52)", for messages.
[[nodiscard]] std::string DescribeOp(Op op);

}  // namespace crossdock::formats::pickle
