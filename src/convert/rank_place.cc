// SPDX-License-Identifier: Apache-2.0
// Megatron-Core builds its groups from two grids over the same ranks (parallel_state.py, RankGenerator): tp x cp x dp x pp for dense
// weights and etp x ep x expert dp x pp for experts, the first direction fastest. Both must agree on the stages, which is why the world
// is a multiple of either product.
#include <fmt/format.h>

#include <numeric>

#include "convert/layout_options.h"
#include "crossdock/live.h"

namespace crossdock {

Result<RankPlace> PlaceOfRank(const LayoutOptions& options, const GlobalRank& rank) {
  const layout::ParallelLayout layout = convert::LayoutOf(options);
  if (layout.tp < 1 || layout.pp < 1 || layout.ep < 1 || layout.expert_tp() < 1 || rank.context_parallel < 1) {
    return MakeError(ErrorCode::kUsage, "sizes of a parallel layout are at least 1");
  }
  const std::int64_t dense = std::int64_t{layout.tp} * rank.context_parallel;
  const std::int64_t experts = std::int64_t{layout.ep} * layout.expert_tp();
  const std::int64_t world = rank.world_size > 0 ? rank.world_size : std::lcm(dense, experts) * layout.pp;
  for (const std::int64_t of_stage : {dense, experts}) {
    if (world % (of_stage * layout.pp) == 0) continue;
    return MakeError(ErrorCode::kUsage, "the layout does not divide the world")
        .WithExpected(of_stage == dense ? fmt::format("a multiple of tp {} x cp {} x pp {}", layout.tp, rank.context_parallel, layout.pp)
                                        : fmt::format("a multiple of etp {} x ep {} x pp {}", layout.expert_tp(), layout.ep, layout.pp))
        .WithFound(fmt::format("{} ranks", world));
  }
  if (rank.rank < 0 || rank.rank >= world) {
    return MakeError(ErrorCode::kUsage, "this rank is not of the world")
        .WithExpected(fmt::format("a rank from 0 to {}", world - 1))
        .WithFound(fmt::format("rank {}", rank.rank))
        .WithHint(rank.world_size > 0 ? "" : "say the world's size: without it a world without copies is meant");
  }
  RankPlace place;
  place.tensor = rank.rank % layout.tp;
  place.stage = static_cast<int>(rank.rank / (world / layout.pp));
  place.expert_tensor = rank.rank % layout.expert_tp();
  place.expert = rank.rank / layout.expert_tp() % layout.ep;
  return place;
}

}  // namespace crossdock
