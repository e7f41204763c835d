// SPDX-License-Identifier: Apache-2.0
#include "verify/masters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "kernels/cast.h"
#include "verify/evaluate.h"

namespace crossdock::verify {
namespace {

bool IsNan(const std::byte* p, DType dtype) { return std::isnan(kernels::LoadAsDouble(p, dtype)); }

struct Found {
  std::int64_t differing = 0;
  std::int64_t first = -1;
};

/// Counts the elements of a tile whose bits differ; `at` is the row-major place of the tile's first one.
void CountTile(const std::vector<std::byte>& param, const std::vector<std::byte>& rounded, DType dtype, std::int64_t at, Found* found) {
  if (param == rounded) return;
  const auto element = static_cast<std::size_t>(ElementSize(dtype));
  for (std::size_t i = 0; i * element < param.size(); ++i) {
    const std::byte* a = param.data() + i * element;
    const std::byte* b = rounded.data() + i * element;
    if (std::memcmp(a, b, element) == 0 || (IsNan(a, dtype) && IsNan(b, dtype))) continue;
    ++found->differing;
    if (found->first < 0) found->first = at + static_cast<std::int64_t>(i);
  }
}

Error Mismatch(const MasterPair& pair, const Found& found) {
  return MakeError(ErrorCode::kCorrupt, "the master weights do not round to the model's weights: the optimizer state is not in the order that the run's arguments say, or is of another step")
      .WithTensor(pair.name)
      .WithExpected(fmt::format("every master weight, rounded to {}, equal to its model weight", DTypeName(pair.param_dtype)))
      .WithFound(fmt::format("{} of {} elements differ, the first at {}", found.differing, CheckedCount(pair.shape), found.first))
      .WithHint("save the run again with --dist-ckpt-optim-fully-reshardable (Megatron-Core 0.15 or newer), or leave the state behind with --no-optim");
}

}  // namespace

Status CheckMasters(const Side& side, std::span<const MasterPair> pairs, const MasterOptions& options) {
  std::int64_t total = 0;
  for (const MasterPair& pair : pairs) total += CheckedCount(pair.shape);
  // A tile is held as parameters, masters, rounded masters, and the evaluator's scratch.
  const std::int64_t tile = std::clamp<std::int64_t>(options.memory / 32, std::int64_t{1} << 12U, std::int64_t{1} << 20U);
  Evaluator evaluator(side, options.memory / 4);
  std::vector<std::byte> param;
  std::vector<std::byte> master;
  std::vector<std::byte> rounded;
  std::int64_t done = 0;
  for (const MasterPair& pair : pairs) {
    const dialects::HubTensor weight{pair.name, Slot::kParam, pair.param_dtype, pair.shape, pair.param};
    const dialects::HubTensor copy{pair.name, Slot::kMaster, pair.master_dtype, pair.shape, pair.master};
    Found found;
    std::int64_t at = 0;
    for (const Box& box : RowMajorTiles(pair.shape, tile)) {
      if (options.stop.stop_requested()) return MakeError(ErrorCode::kCancelled, "interrupted while master weights were compared");
      CROSSDOCK_RETURN_IF_ERROR(evaluator.Evaluate(weight, box, param));
      CROSSDOCK_RETURN_IF_ERROR(evaluator.Evaluate(copy, box, master));
      rounded.resize(param.size());
      kernels::Cast(master.data(), pair.master_dtype, rounded.data(), pair.param_dtype, box.count());
      CountTile(param, rounded, pair.param_dtype, at, &found);
      at += box.count();
      done += box.count();
      if (options.on_progress) options.on_progress(done, total);
    }
    if (found.differing > 0) return Mismatch(pair, found);
  }
  return OkStatus();
}

}  // namespace crossdock::verify
