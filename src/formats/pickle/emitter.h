// SPDX-License-Identifier: Apache-2.0
/// \file  Emitter: writes opcodes of pickle protocol 2, and only those that torch.load(weights_only=True) knows.
/// On disk: FORMAT.md, 4. Texts and globals may be memoized: the first use is stored under a number, later ones are
/// three bytes. The memo holds distinct texts only, so a stream of any length needs memory for its names alone.
/// Invariant: bytes depend on the calls only. Threads: one emitter, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tensor/dims.h"

namespace crossdock::formats::pickle {

class Emitter {
 public:
  /// Without `memoize` every text and global is written out each time: the shortest form of a tiny pickle.
  explicit Emitter(bool memoize = true) : memoize_(memoize) {}

  void Start();                                   ///< PROTO 2
  void Stop();
  void Null() { Byte('N'); }
  void Bool(bool v) { Byte(v ? '\x88' : '\x89'); }
  void Int(std::int64_t v);
  void Long(std::string_view little_endian);      ///< REQUIRES: at most 255 bytes
  void Float(double v);
  void Text(std::string_view utf8);               ///< REQUIRES: < 4 GiB
  void MemoText(std::string_view utf8);           ///< memoized
  void Global(std::string_view module, std::string_view name);  ///< memoized
  void Size(const Dims& dims);                    ///< torch.Size
  void Tuple(const Dims& dims);                   ///< of integers
  void Mark() { Byte('('); }
  void EmptyDict() { Byte('}'); }
  void EmptyList() { Byte(']'); }
  void EmptyTuple() { Byte(')'); }
  void TupleFromMark() { Byte('t'); }
  void SetItems() { Byte('u'); }                  ///< of the dict under the mark
  void Appends() { Byte('e'); }
  void Reduce() { Byte('R'); }
  void NewObj() { Byte('\x81'); }
  void Build() { Byte('b'); }
  void PersistentId() { Byte('Q'); }
  void Byte(char c) { out_.push_back(c); }

  [[nodiscard]] const std::string& bytes() const { return out_; }
  /// Gives away what was written so far and goes on with an empty buffer; the memo stays.
  [[nodiscard]] std::string Flush();

 private:
  /// Writes BINGET when `key` is known and returns true; else remembers it, and the caller writes it, then Put.
  [[nodiscard]] bool Get(const std::string& key);
  void Put();

  bool memoize_;
  std::string out_;
  std::unordered_map<std::string, std::uint32_t> memo_;  // looked up only, never walked
};

}  // namespace crossdock::formats::pickle
