// SPDX-License-Identifier: Apache-2.0
/// \file  Every path that this machine runs gives the bytes and scales of the real torch (tests/golden/fp8).
#include "quantize/block_paths.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "result_matchers.h"
#include "tensor/value.h"

namespace crossdock::quantize {
namespace {

/// splitmix64 of seed * 2^32 + i.
std::uint64_t Mix(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = (seed << 32U) + i + 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

/// How the bits of a type lie: the sign's place, the width of the mantissa, and an exponent of all ones.
struct Bits {
  unsigned top, mantissa, full;
};

Bits FieldsOf(DType dtype) {
  if (dtype == DType::kF32) return {31, 23, 255};
  return dtype == DType::kBF16 ? Bits{15, 7, 255} : Bits{15, 10, 31};
}

/// The pattern of element i of a golden case, as its generate.py makes it.
std::uint64_t Element(const std::string& kind, std::uint64_t seed, std::uint64_t i, DType dtype) {
  const Bits t = FieldsOf(dtype);
  const std::uint64_t v = Mix(seed, i), one = 1;
  const std::uint64_t sign = (v >> 63U) << t.top, mantissa = v & ((one << t.mantissa) - 1);
  const auto zeros = static_cast<std::uint64_t>(std::countr_zero(((v >> 24U) & 0xFFFFU) | 0x10000U));
  const auto finite = [&](std::uint64_t bits) { return ((bits >> t.mantissa) & t.full) != t.full; };
  if (kind == "patterns") return finite(i & 0xFFFFU) ? i & 0xFFFFU : 0;
  if (kind == "bits") {
    const std::uint64_t bits = v & ((one << (t.top + 1)) - 1);
    return finite(bits) ? bits : bits ^ (one << t.mantissa);
  }
  if (kind == "zeros") return sign;
  if (kind == "tiny") return sign | ((zeros & 1U) << t.mantissa) | mantissa;
  const std::uint64_t base = dtype == DType::kF16 ? 12 : 121;
  const std::uint64_t bits = sign | ((base - std::min(zeros, base)) << t.mantissa) | mantissa;
  if (kind != "nonfinite") return bits;
  const std::uint64_t infinity = std::uint64_t{t.full} << t.mantissa, what = (v >> 40U) & 0xFFU;
  if (what == 0) return sign | infinity | (one << (t.mantissa - 1)) | (mantissa & 3U);
  return what == 1 ? sign | infinity : bits;
}

struct GoldenMatrix {
  std::string name;
  DType dtype = DType::kF32;
  std::int64_t rows = 0, cols = 0;
  Fp8Rule rule;
  std::vector<std::byte> w;
  std::string q, s, q_start, s_start;
};

std::vector<GoldenMatrix> ReadGoldenMatrices() {
  std::ifstream in(CROSSDOCK_SOURCE_DIR "/tests/golden/fp8/expected.json");
  std::stringstream text;
  text << in.rdbuf();
  std::vector<GoldenMatrix> all;
  const Result<Value> read = ParseJson(text.str());
  EXPECT_THAT(read, IsOk());
  if (!read) return all;
  for (const auto& [key, row] : read->as_dict()->items) {
    GoldenMatrix m;
    const auto pair = [&, &row = row](std::string_view name, std::size_t at) { return *(*row.Find(name)->as_sequence())[at].as_int(); };
    const std::string kind = *row.GetString("kind");
    const auto seed = static_cast<std::uint64_t>(*row.GetInt("seed"));
    m.name = *key.as_string() + " " + kind;
    m.dtype = *DTypeFromName(*row.GetString("dtype"));
    m.rows = pair("shape", 0);
    m.cols = pair("shape", 1);
    m.rule = {pair("block", 0), pair("block", 1), *row.GetBool("ue8m0") ? ScaleFormat::kUe8m0 : ScaleFormat::kFloat,
              *row.GetBool("relax") ? Arithmetic::kRelax : Arithmetic::kReference};
    const auto size = static_cast<std::size_t>(ElementSize(m.dtype)), count = static_cast<std::size_t>(m.rows * m.cols);
    m.w.resize(count * size);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = Element(kind, seed, i, m.dtype);
      std::memcpy(m.w.data() + i * size, &bits, size);  // little-endian, as every machine that has a path
    }
    m.q = *row.GetString("q");
    m.s = *row.GetString("s");
    m.q_start = *row.GetString("q_start");
    m.s_start = *row.GetString("s_start");
    all.push_back(std::move(m));
  }
  return all;
}

std::string_view TextOf(const void* data, std::size_t size) { return {static_cast<const char*>(data), size}; }

std::string HexStart(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes.substr(0, 16)) {
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4U];
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) & 15U];
  }
  return hex;
}

TEST(QuantizeBlocksBy, EveryPathGivesTorchsBytesAndScales) {
  const std::vector<GoldenMatrix> all = ReadGoldenMatrices();
  ASSERT_GT(all.size(), 100U);
  for (const GoldenMatrix& m : all) {
    std::vector<std::byte> q(static_cast<std::size_t>(m.rows * m.cols));
    const std::int64_t down = (m.rows + m.rule.block_rows - 1) / m.rule.block_rows;
    const std::int64_t across = (m.cols + m.rule.block_cols - 1) / m.rule.block_cols;
    std::vector<float> s(static_cast<std::size_t>(down * across));
    const std::size_t scales = s.size() * sizeof(float);
    for (const simd::Path* path : simd::Runnable()) {
      SCOPED_TRACE(m.name + " by " + path->name);
      QuantizeBlocksBy(*path, m.w.data(), m.dtype, m.rows, m.cols, m.rule, q.data(), s.data());
      EXPECT_EQ(HexStart(TextOf(s.data(), scales)), m.s_start);
      EXPECT_EQ(HexStart(TextOf(q.data(), q.size())), m.q_start);
      EXPECT_EQ(Sha256Hex(TextOf(s.data(), scales)), m.s);
      EXPECT_EQ(Sha256Hex(TextOf(q.data(), q.size())), m.q);
      if (m.rule.block_rows < m.rows || m.rule.block_cols < m.cols) continue;
      NonFinite found;
      const std::int64_t count = m.rows * m.cols;
      const float scale = ScaleOf(AmaxBy(*path, m.w.data(), m.dtype, count, &found), m.rule);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(scale), std::bit_cast<std::uint32_t>(s[0]));
      EXPECT_EQ(found.count == 0, std::isfinite(scale));
      std::fill(q.begin(), q.end(), std::byte{0x55});
      QuantizeWithScaleBy(*path, m.w.data(), m.dtype, count, scale, m.rule, q.data());
      EXPECT_EQ(Sha256Hex(TextOf(q.data(), q.size())), m.q);
    }
  }
}

}  // namespace
}  // namespace crossdock::quantize
