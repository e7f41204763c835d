// SPDX-License-Identifier: Apache-2.0
#include "layout/parallel_layout.h"

#include <numeric>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace crossdock::layout {
namespace {

StageMap FromCounts(const std::vector<std::int64_t>& counts) {
  StageMap map;
  std::int64_t first = 0;
  for (std::int64_t count : counts) {
    map.stages.push_back({first, count});
    first += count;
  }
  return map;
}

/// A division that is even but for at most one layer, larger stages first: what the hint proposes.
std::string ProposedLayers(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  for (std::int64_t i = 0; i < layers % stages; ++i) ++counts[static_cast<std::size_t>(i)];
  return fmt::format("--pipeline-layers {}", fmt::join(counts, ","));
}

Error TooManyStages(std::int64_t layers, int pp) {
  return MakeError(ErrorCode::kUsage, fmt::format("{} layers cannot fill {} pipeline stages", layers, pp))
      .WithExpected(fmt::format("--pp of at most {}", layers))
      .WithFound(fmt::format("--pp {}", pp));
}

Result<StageMap> Explicit(const ParallelLayout& layout, std::int64_t layers) {
  const std::vector<std::int64_t>& counts = layout.pipeline_layers;
  if (layout.first_stage_layers || layout.last_stage_layers) {
    return MakeError(ErrorCode::kUsage,
                     "--pipeline-layers and --first-stage-layers or --last-stage-layers say the same thing twice")
        .WithHint("give one of them");
  }
  if (counts.size() != static_cast<std::size_t>(layout.pp)) {
    return MakeError(ErrorCode::kUsage, "--pipeline-layers and --pp disagree about the number of pipeline stages")
        .WithExpected(fmt::format("{} numbers, one a stage", layout.pp))
        .WithFound(fmt::format("{} ({})", counts.size(), fmt::join(counts, ",")));
  }
  std::int64_t sum = 0;
  for (std::int64_t count : counts) {
    if (count < 1 || count > layers) {
      return MakeError(ErrorCode::kUsage, fmt::format("a pipeline stage cannot hold {} of {} layers", count, layers))
          .WithFound(fmt::format("--pipeline-layers {}", fmt::join(counts, ",")));
    }
    sum += count;
  }
  if (sum != layers) {
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    return MakeError(ErrorCode::kUsage, "--pipeline-layers does not add up to the model's layers")
        .WithExpected(fmt::format("a sum of {}", layers))
        .WithFound(fmt::format("{} = {}", fmt::join(counts, " + "), total))
        .WithHint(fmt::format("for example {}", ProposedLayers(layers, layout.pp)));
  }
  return FromCounts(counts);
}

Result<StageMap> Uneven(const ParallelLayout& layout, std::int64_t layers) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(layout.pp), 0);
  std::int64_t rest = layers;
  std::int64_t middle = layout.pp;
  std::string arithmetic = fmt::format("{}", layers);
  for (const std::optional<std::int64_t>& end : {layout.first_stage_layers, layout.last_stage_layers}) {
    if (!end) continue;
    if (*end < 1 || *end > layers) {
      return MakeError(ErrorCode::kUsage, fmt::format("a pipeline stage cannot hold {} of {} layers", *end, layers));
    }
    rest -= *end;
    --middle;
    arithmetic += fmt::format(" - {}", *end);
  }
  if (layout.first_stage_layers) counts.front() = *layout.first_stage_layers;
  if (layout.last_stage_layers) counts.back() = *layout.last_stage_layers;
  const bool fits = layout.pp > 1 && middle >= 0 && rest >= 0 &&
                    (middle == 0 ? rest == 0 : rest % middle == 0 && rest / middle > 0);
  if (!fits) {
    return MakeError(ErrorCode::kUsage, "the pipeline stages between the first and the last cannot share the remaining layers")
        .WithExpected(middle > 0 ? fmt::format("a positive multiple of {}", middle) : std::string("0 layers"))
        .WithFound(fmt::format("{} = {} layers for {} stages", arithmetic, rest, middle))
        .WithHint(layout.pp <= layers ? fmt::format("for example {}", ProposedLayers(layers, layout.pp))
                                      : fmt::format("use --pp of at most {}", layers));
  }
  for (std::int64_t& count : counts) {
    if (count == 0) count = rest / middle;
  }
  return FromCounts(counts);
}

}  // namespace

int StageMap::StageOf(std::int64_t layer) const {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (layer >= stages[i].first && layer < stages[i].first + stages[i].count) return static_cast<int>(i);
  }
  return stages.empty() ? 0 : static_cast<int>(stages.size()) - 1;
}

Result<StageMap> MakeStageMap(const ParallelLayout& layout, std::int64_t layers) {
  for (const auto& [flag, value] : {std::pair{"--tp", layout.tp}, std::pair{"--pp", layout.pp}}) {
    if (value < 1) {
      return MakeError(ErrorCode::kUsage, fmt::format("{} must be at least 1", flag)).WithFound(fmt::format("{}", value));
    }
  }
  if (layers < 1) {
    return MakeError(ErrorCode::kUsage, "a model without layers cannot be divided into stages").WithFound(fmt::format("{} layers", layers));
  }
  if (layout.pp > layers) return TooManyStages(layers, layout.pp);
  if (!layout.pipeline_layers.empty()) return Explicit(layout, layers);
  if (layout.first_stage_layers || layout.last_stage_layers) return Uneven(layout, layers);
  if (layers % layout.pp != 0) {
    return MakeError(ErrorCode::kUsage, fmt::format("{} layers do not divide by pp {}", layers, layout.pp))
        .WithExpected(fmt::format("a number of layers that is a multiple of {}", layout.pp))
        .WithFound(fmt::format("{} = {} x {} + {}", layers, layout.pp, layers / layout.pp, layers % layout.pp))
        .WithHint(fmt::format("name the layers of each stage, for example {}, or use --first-stage-layers, --last-stage-layers",
                              ProposedLayers(layers, layout.pp)));
  }
  return FromCounts(std::vector<std::int64_t>(static_cast<std::size_t>(layout.pp), layers / layout.pp));
}

}  // namespace crossdock::layout
