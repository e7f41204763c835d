// SPDX-License-Identifier: Apache-2.0
#include "dialects/mcore/tensor_parallel.h"

#include <string>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::dialects::mcore {
namespace {

/// Megatron lets TP be a divisor or a multiple of the groups: beyond them a row cut falls inside a group, and the global
/// tensor stays the same.
bool Fits(std::int64_t tp, const HeadCounts& c) {
  if (c.heads > 0 && c.heads % tp != 0) return false;
  if (c.groups > 0 && c.groups % tp != 0 && tp % c.groups != 0) return false;
  return c.ffn <= 0 || c.ffn % tp == 0;
}

}  // namespace

Status CheckExpertsDivide(std::int64_t experts, int ep) {
  if (experts % ep == 0) return OkStatus();
  return MakeError(ErrorCode::kUsage, "the experts do not divide among the expert-parallel ranks")
      .WithExpected(fmt::format("--ep to be a divisor of {}", experts))
      .WithFound(fmt::format("--ep {}", ep));
}

Status CheckTensorParallel(const HeadCounts& counts, int tp) {
  if (tp < 1) return MakeError(ErrorCode::kUsage, "--tp must be at least 1").WithFound(fmt::format("{}", tp));
  if (Fits(tp, counts)) return OkStatus();
  constexpr std::int64_t kMostShown = 4096;  // the counts come from files
  std::vector<std::int64_t> allowed;
  const std::int64_t most = counts.heads > 0 ? counts.heads : tp;
  for (std::int64_t t = 1; t <= most && t <= kMostShown; ++t) {
    if (Fits(t, counts)) allowed.push_back(t);
  }
  std::string found = fmt::format("--tp {} for num_attention_heads {}, num_key_value_heads {}", tp, counts.heads, counts.groups);
  if (counts.ffn > 0) found += fmt::format(", intermediate_size {}", counts.ffn);
  return MakeError(ErrorCode::kUsage, "the model cannot be divided among that many tensor-parallel ranks")
      .WithExpected(fmt::format("--tp of {}", fmt::join(allowed, ", ")))
      .WithFound(std::move(found));
}

}  // namespace crossdock::dialects::mcore
