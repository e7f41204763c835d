// SPDX-License-Identifier: Apache-2.0
#include "plan/jobs.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked_math.h"
#include "plan/fingerprint.h"
#include "plan/problems.h"

namespace crossdock::plan {
namespace {

struct Half {
  std::int32_t values = -1;
  std::int32_t scales = -1;
  std::size_t job = 0;  ///< of the values, once they are seen
};

std::string FormatKey(const expr::Fp8Format& fp8) {
  return fmt::format("/{}x{} {:d} {} {}", fp8.block.rows, fp8.block.cols, fp8.whole, static_cast<int>(fp8.scales),
                     static_cast<int>(fp8.arithmetic));
}

/// Every edge of a chunk of q must lie between blocks: a block has one scale, so one task must see it whole.
void CheckEdges(const Job& job, const Entry& q, Problems& problems) {
  const Dims block = {job.unit(0), job.unit(1)};
  for (const Chunk& chunk : q.chunks) {
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const std::int64_t begin = chunk.box.offsets[axis];
      const std::int64_t end = begin + chunk.box.sizes[axis];
      if (begin % block[axis] == 0 && (end % block[axis] == 0 || end == q.shape[axis])) continue;
      problems.Add(MakeError(ErrorCode::kUnsupported, "the edge of a chunk cuts a quantization block")
                       .WithTensor(q.name)
                       .WithExpected("edges at multiples of " + ToString(block))
                       .WithFound("chunk " + ToString(chunk.box)));
      return;
    }
  }
}

}  // namespace

Result<std::vector<Job>> MakeJobs(const Catalog& target, std::span<const expr::Expr> exprs) {
  std::vector<Job> jobs;
  std::map<std::string, Half> pairs;
  Problems problems;
  for (std::size_t i = 0; i < exprs.size(); ++i) {
    const auto entry = static_cast<std::int32_t>(i);
    if (!expr::IsQuantize(exprs[i])) {
      if (CheckedCount(exprs[i]->shape) == 0) continue;
      jobs.push_back({expr::Simplify(exprs[i]), entry, -1, {}});
      continue;
    }
    const expr::Expr input = expr::Simplify(exprs[i]->inputs[0]);
    const expr::Fp8Format& fp8 = exprs[i]->fp8();
    Half& half = pairs[ExprKey(input) + FormatKey(fp8)];
    const bool values = exprs[i]->op == expr::Op::kQuantizeValues;
    std::int32_t& mine = values ? half.values : half.scales;
    if (mine >= 0) {
      problems.Add(MakeError(ErrorCode::kUnsupported, "two outputs quantize the same tensor in the same blocks")
                       .WithTensor(target.entries[i].name)
                       .WithFound("`" + EntryAt(target, mine).name + "` does it too"));
      continue;
    }
    mine = entry;
    if (values) {
      half.job = jobs.size();
      jobs.push_back({input, entry, -1, fp8});
    }
    if (half.values >= 0) jobs[half.job].scales = half.scales;
  }
  for (const auto& [key, half] : pairs) {
    if (half.values >= 0 && half.scales >= 0) continue;
    const std::int32_t lone = std::max(half.values, half.scales);
    problems.Add(MakeError(ErrorCode::kUnsupported, "a quantized tensor has no partner over the same input")
                     .WithTensor(EntryAt(target, lone).name)
                     .WithExpected(half.values >= 0 ? "a tensor of its scales" : "a tensor of its values"));
  }
  for (const Job& job : jobs) {
    if (job.is_pair()) CheckEdges(job, EntryAt(target, job.entry), problems);
  }
  CROSSDOCK_RETURN_IF_ERROR(problems.ToStatus());
  std::erase_if(jobs, [](const Job& j) { return CheckedCount(j.expr->shape) == 0; });
  return jobs;
}

std::vector<Box> PairRegions(const Job& job, const Catalog& target) {
  CROSSDOCK_CHECK(job.is_pair());
  const Dims block = {job.unit(0), job.unit(1)};
  std::vector<Box> regions;
  if (job.fp8.whole) return {Box::Whole(job.expr->shape)};
  for (const Chunk& q : EntryAt(target, job.entry).chunks) {
    for (const Chunk& s : EntryAt(target, job.scales).chunks) {
      Box reach = s.box;  // in elements of q; the last block may end early, the intersection sees to it
      for (std::size_t axis = 0; axis < 2; ++axis) {
        reach.offsets[axis] *= block[axis];
        reach.sizes[axis] *= block[axis];
      }
      if (const auto region = Intersect(q.box, reach)) regions.push_back(*region);
    }
  }
  return regions;
}

Box ScalesBox(const Job& job, const Box& box) {
  if (job.fp8.whole) return {{0}, {1}};
  const Dims block = {job.unit(0), job.unit(1)};
  Box out = box;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    out.offsets[axis] = box.offsets[axis] / block[axis];
    out.sizes[axis] = CeilDiv(box.sizes[axis], block[axis]);
  }
  return out;
}

}  // namespace crossdock::plan
