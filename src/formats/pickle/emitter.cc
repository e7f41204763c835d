// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle/emitter.h"

#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/endian.h"
#include "formats/pickle/numbers.h"

namespace crossdock::formats::pickle {
namespace {

template <typename T>
void AppendLittle(std::string& out, T value) {
  std::array<char, sizeof(T)> raw{};
  StoreLittle(raw.data(), value);
  out.append(raw.data(), raw.size());
}

}  // namespace

void Emitter::Start() { out_ += "\x80\x02"; }

void Emitter::Stop() { Byte('.'); }

void Emitter::Int(std::int64_t v) {
  if (v >= 0 && v <= 0xFF) {
    Byte('K');
    AppendLittle(out_, static_cast<std::uint8_t>(v));
  } else if (v >= 0 && v <= 0xFFFF) {
    Byte('M');
    AppendLittle(out_, static_cast<std::uint16_t>(v));
  } else if (v >= INT32_MIN && v <= INT32_MAX) {
    Byte('J');
    AppendLittle(out_, static_cast<std::int32_t>(v));
  } else {
    Long(Int64ToBytes(v));
  }
}

void Emitter::Long(std::string_view little_endian) {
  CROSSDOCK_CHECK(little_endian.size() <= 0xFF);
  Byte('\x8a');
  AppendLittle(out_, static_cast<std::uint8_t>(little_endian.size()));
  out_ += little_endian;
}

void Emitter::Float(double v) {
  Byte('G');
  std::array<char, 8> raw{};
  StoreBig64(raw.data(), std::bit_cast<std::uint64_t>(v));
  out_.append(raw.data(), raw.size());
}

void Emitter::Text(std::string_view utf8) {
  CROSSDOCK_CHECK(utf8.size() <= UINT32_MAX);
  Byte('X');
  AppendLittle(out_, static_cast<std::uint32_t>(utf8.size()));
  out_ += utf8;
}

void Emitter::MemoText(std::string_view utf8) {
  if (Get("X" + std::string(utf8))) return;
  Text(utf8);
  Put();
}

void Emitter::Global(std::string_view module, std::string_view name) {
  std::string line = std::string(module) + "\n" + std::string(name) + "\n";
  if (Get("c" + line)) return;
  Byte('c');
  out_ += line;
  Put();
}

void Emitter::Tuple(const Dims& dims) {
  if (dims.empty()) return EmptyTuple();
  Mark();
  for (std::int64_t v : dims) Int(v);
  TupleFromMark();
}

void Emitter::Size(const Dims& dims) {
  Global("torch", "Size");
  Mark();
  Tuple(dims);
  TupleFromMark();
  Reduce();
}

std::string Emitter::Flush() { return std::exchange(out_, {}); }

bool Emitter::Get(const std::string& key) {
  if (!memoize_) return false;
  const auto [at, fresh] = memo_.emplace(key, static_cast<std::uint32_t>(memo_.size()));
  if (fresh) return false;
  if (at->second <= 0xFF) {
    Byte('h');
    AppendLittle(out_, static_cast<std::uint8_t>(at->second));
  } else {
    Byte('j');
    AppendLittle(out_, at->second);
  }
  return true;
}

void Emitter::Put() {
  if (!memoize_) return;
  const auto index = static_cast<std::uint32_t>(memo_.size() - 1);
  if (index <= 0xFF) {
    Byte('q');
    AppendLittle(out_, static_cast<std::uint8_t>(index));
  } else {
    Byte('r');
    AppendLittle(out_, index);
  }
}

}  // namespace crossdock::formats::pickle
