// SPDX-License-Identifier: Apache-2.0
#include "layout/stage_map.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "layout/pipeline_layout.h"

namespace crossdock::layout {
namespace {

/// Counts in the order of the chunks: chunk v of stage p at v * pp + p.
StageMap FromCounts(std::span<const std::int64_t> counts, int pp) {
  StageMap map;
  map.pp = pp;
  map.vpp = static_cast<int>(counts.size()) / pp;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const int at = static_cast<int>(i);
    map.chunks.push_back({at % pp, at / pp, first, counts[i], i == 0, i + 1 == counts.size()});
    first += counts[i];
  }
  return map;
}

std::size_t Cells(int pp, int vpp) { return static_cast<std::size_t>(pp) * static_cast<std::size_t>(vpp); }

/// The flags of a division that is even but for at most one layer, larger chunks first.
std::string Proposal(std::int64_t layers, int pp, int vpp) {
  const auto cells = static_cast<std::int64_t>(Cells(pp, vpp));
  if (cells > 64) return "--pipeline-layout with a cell for each stage and virtual stage";
  std::vector<std::int64_t> counts(static_cast<std::size_t>(cells), layers / cells);
  for (std::int64_t i = 0; i < layers % cells; ++i) ++counts[static_cast<std::size_t>(i)];
  if (vpp == 1 && layers >= cells) return fmt::format("--pipeline-layers {}", fmt::join(counts, ","));
  return fmt::format("--pipeline-layout '{}'", PipelineLayoutString(counts));
}

Error TwiceSaid(std::string_view one, std::string_view other) {
  return MakeError(ErrorCode::kUsage, fmt::format("{} and {} say how layers are divided in two ways", one, other)).WithHint("give one of them");
}

/// The ways to divide layers exclude each other, as in Megatron.
Status CheckOneWay(const ParallelLayout& layout) {
  const bool ends = layout.first_stage_layers || layout.last_stage_layers;
  const bool account = layout.account_for_embedding || layout.account_for_loss;
  const std::string_view end = layout.first_stage_layers ? "--first-stage-layers" : "--last-stage-layers";
  const std::string_view counted = layout.account_for_embedding ? "--account-for-embedding" : "--account-for-loss";
  constexpr std::string_view kString = "--pipeline-layout";
  constexpr std::string_view kList = "--pipeline-layers";
  constexpr std::string_view kPerVirtual = "--num-layers-per-virtual-pipeline-stage";
  if (!layout.pipeline_layout.empty()) {
    if (!layout.pipeline_layers.empty()) return TwiceSaid(kString, kList);
    if (ends) return TwiceSaid(kString, end);
    if (account) return TwiceSaid(kString, counted);
    if (layout.layers_per_virtual_stage) return TwiceSaid(kString, kPerVirtual);
    return OkStatus();
  }
  if (!layout.pipeline_layers.empty() && ends) return TwiceSaid(kList, end);
  if (!layout.pipeline_layers.empty() && account) return TwiceSaid(kList, counted);
  if (ends && account) return TwiceSaid(end, counted);
  if (!layout.layers_per_virtual_stage) return OkStatus();
  if (layout.vpp != 1) return TwiceSaid("--vpp", kPerVirtual);
  if (ends || !layout.pipeline_layers.empty()) {
    return MakeError(ErrorCode::kUsage, fmt::format("{} needs stages of equal size", kPerVirtual))
        .WithFound(std::string(ends ? end : kList))
        .WithHint("say with --vpp how many virtual stages each stage has");
  }
  return OkStatus();
}

/// Virtual stages are for pipelines: Megatron's interleaved schedule needs two stages.
Status CheckVirtual(int pp, int vpp) {
  if (vpp == 1 || pp > 1) return OkStatus();
  return MakeError(ErrorCode::kUsage, "virtual pipeline stages need at least two pipeline stages")
      .WithExpected("--pp of at least 2")
      .WithFound(fmt::format("--pp {} with {} virtual stages", pp, vpp));
}

// ---- the layout string ----

Result<StageMap> FromString(const ParallelLayout& layout, std::int64_t layers) {
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<std::string> cells, ParsePipelineLayout(layout.pipeline_layout));
  const std::string shown = Printable(layout.pipeline_layout);
  const auto refuse = [&](std::string message) {
    return MakeError(ErrorCode::kUsage, fmt::format("the pipeline layout `{}` {}", shown, message));
  };
  const auto number = static_cast<std::int64_t>(cells.size());
  if (number % layout.pp != 0) {
    return refuse(fmt::format("cannot be dealt to {} pipeline stages", layout.pp))
        .WithExpected(fmt::format("a number of cells that is a multiple of --pp {}", layout.pp))
        .WithFound(fmt::format("{} cells", number))
        .WithHint(fmt::format("for example {}", Proposal(layers, layout.pp, layout.vpp)));
  }
  const auto vpp = static_cast<int>(number / layout.pp);
  if (layout.vpp != 1 && layout.vpp != vpp) {
    return refuse("has another number of virtual stages than --vpp")
        .WithExpected(fmt::format("{} x {} = {} cells", layout.pp, layout.vpp, Cells(layout.pp, layout.vpp)))
        .WithFound(fmt::format("{} cells", number));
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckVirtual(layout.pp, vpp));
  std::string all;
  std::vector<std::int64_t> counts;
  for (const std::string& cell : cells) {
    all += cell;
    counts.push_back(std::count(cell.begin(), cell.end(), 't'));
  }
  const auto total = [&](char letter) { return std::count(all.begin(), all.end(), letter); };
  CROSSDOCK_RETURN_IF_ERROR(FindMtp(cells, layout.pp));
  if (total('E') != 1 || all.front() != 'E') {
    return refuse("must begin with the embedding (E), and name it once").WithFound(fmt::format("{} times E", total('E')));
  }
  if (total('L') != 1 || all.back() != 'L') {
    return refuse("must end with the loss (L), and name it once").WithFound(fmt::format("{} times L", total('L')));
  }
  if (total('t') != layers) {
    return refuse("does not hold the model's layers")
        .WithExpected(fmt::format("{} times t", layers))
        .WithFound(fmt::format("{} = {}", fmt::join(counts, " + "), total('t')))
        .WithHint(fmt::format("for example {}", Proposal(layers, layout.pp, vpp)));
  }
  return FromCounts(counts, layout.pp);
}

// ---- layers by stage ----

/// Layers of every stage, dealt to its virtual stages in equal parts; `offcut` layers are missing at either end.
struct StageCounts {
  std::vector<std::int64_t> layers;
  std::int64_t first_offcut = 0;
  std::int64_t last_offcut = 0;
};

Result<StageMap> Deal(const ParallelLayout& layout, const StageCounts& stages, int vpp, std::int64_t layers) {
  CROSSDOCK_RETURN_IF_ERROR(CheckVirtual(layout.pp, vpp));
  std::vector<std::int64_t> counts;
  for (std::size_t p = 0; p < stages.layers.size(); ++p) {
    if (stages.layers[p] % vpp == 0) continue;
    const bool counted = stages.first_offcut + stages.last_offcut > 0;
    return MakeError(ErrorCode::kUsage, fmt::format("the layers of pipeline stage {} do not divide by vpp {}", p, vpp))
        .WithExpected(fmt::format("a multiple of {}", vpp))
        .WithFound(fmt::format("{} = {} x {} + {}{}", stages.layers[p], vpp, stages.layers[p] / vpp, stages.layers[p] % vpp,
                               counted ? ", embedding and loss counted as asked" : ""))
        .WithHint(fmt::format("for example {}", Proposal(layers, layout.pp, vpp)));
  }
  for (int v = 0; v < vpp; ++v) {
    for (const std::int64_t stage : stages.layers) counts.push_back(stage / vpp);
  }
  counts.front() -= stages.first_offcut;
  counts.back() -= stages.last_offcut;
  if (counts.front() < 0 || counts.back() < 0) {
    return MakeError(ErrorCode::kUsage, fmt::format("{} layers are too few for {} stages that count embedding and loss as layers", layers, Cells(layout.pp, vpp)))
        .WithHint(fmt::format("for example {}", Proposal(layers, layout.pp, vpp)));
  }
  return FromCounts(counts, layout.pp);
}

Result<StageCounts> Explicit(const ParallelLayout& layout, std::int64_t layers) {
  const std::vector<std::int64_t>& counts = layout.pipeline_layers;
  if (counts.size() != static_cast<std::size_t>(layout.pp)) {
    return MakeError(ErrorCode::kUsage, "--pipeline-layers and --pp disagree about the number of pipeline stages")
        .WithExpected(fmt::format("{} numbers, one a stage", layout.pp))
        .WithFound(fmt::format("{} ({})", counts.size(), fmt::join(counts, ",")));
  }
  for (std::int64_t count : counts) {
    if (count < 1 || count > layers) {
      return MakeError(ErrorCode::kUsage, fmt::format("a pipeline stage cannot hold {} of {} layers", count, layers))
          .WithFound(fmt::format("--pipeline-layers {}", fmt::join(counts, ",")));
    }
  }
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (sum != layers) {
    return MakeError(ErrorCode::kUsage, "--pipeline-layers does not add up to the model's layers")
        .WithExpected(fmt::format("a sum of {}", layers))
        .WithFound(fmt::format("{} = {}", fmt::join(counts, " + "), sum))
        .WithHint(fmt::format("for example {}", Proposal(layers, layout.pp, layout.vpp)));
  }
  return StageCounts{counts};
}

Result<StageCounts> Uneven(const ParallelLayout& layout, std::int64_t layers) {
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
  const bool fits = middle >= 0 && (middle == 0 ? rest == 0 : rest > 0 && rest % middle == 0);
  if (!fits) {
    return MakeError(ErrorCode::kUsage, "the pipeline stages between the first and the last cannot share the remaining layers")
        .WithExpected(middle > 0 ? fmt::format("a positive multiple of {}", middle) : std::string("0 layers"))
        .WithFound(fmt::format("{} = {} layers for {} stages", arithmetic, rest, std::max<std::int64_t>(middle, 0)))
        .WithHint(layout.pp <= layers ? fmt::format("for example {}", Proposal(layers, layout.pp, layout.vpp))
                                      : fmt::format("use --pp of at most {}", layers));
  }
  if (middle == 0 && layout.vpp > 1 && layout.pp > 1) {
    return MakeError(ErrorCode::kUsage, "Megatron divides by zero when both of two stages are given together with virtual stages")
        .WithFound(fmt::format("--pp 2 --vpp {} --first-stage-layers {} --last-stage-layers {}", layout.vpp, *layout.first_stage_layers, *layout.last_stage_layers))
        .WithHint("give --first-stage-layers or --last-stage-layers alone: the other stage holds the rest");
  }
  StageCounts stages;
  stages.layers.assign(static_cast<std::size_t>(layout.pp), middle == 0 ? 0 : rest / middle);
  if (layout.first_stage_layers) stages.layers.front() = *layout.first_stage_layers;
  if (layout.last_stage_layers) stages.layers.back() = *layout.last_stage_layers;
  return stages;
}

Result<StageCounts> Even(const ParallelLayout& layout, std::int64_t layers) {
  StageCounts stages;
  stages.first_offcut = layout.account_for_embedding ? 1 : 0;
  stages.last_offcut = layout.account_for_loss ? 1 : 0;
  const std::int64_t counted = layers + stages.first_offcut + stages.last_offcut;
  if (counted % layout.pp != 0) {
    const std::string added = fmt::format("{}{}", stages.first_offcut != 0 ? " + 1 for the embedding" : "", stages.last_offcut != 0 ? " + 1 for the loss" : "");
    return MakeError(ErrorCode::kUsage, fmt::format("{} layers{} do not divide by pp {}", layers, added, layout.pp))
        .WithExpected(fmt::format("a number of layers that is a multiple of {}", layout.pp))
        .WithFound(fmt::format("{} = {} x {} + {}", counted, layout.pp, counted / layout.pp, counted % layout.pp))
        .WithHint(fmt::format("name the layers of each stage, for example {}, or use --first-stage-layers, --last-stage-layers",
                              Proposal(layers, layout.pp, layout.vpp)));
  }
  stages.layers.assign(static_cast<std::size_t>(layout.pp), counted / layout.pp);
  return stages;
}

/// How many virtual stages `layers_per_virtual_stage` makes of the equal stages.
Result<int> VirtualStages(const ParallelLayout& layout, const StageCounts& stages) {
  if (!layout.layers_per_virtual_stage) return layout.vpp;
  const std::int64_t size = *layout.layers_per_virtual_stage;
  const std::int64_t stage = stages.layers.front();
  if (size < 1 || stage % size != 0) {
    return MakeError(ErrorCode::kUsage, fmt::format("the {} layers of a pipeline stage are no multiple of --num-layers-per-virtual-pipeline-stage", stage))
        .WithExpected(fmt::format("a divisor of {}", stage))
        .WithFound(fmt::format("{}", size))
        .WithHint("this option counts layers; --vpp counts virtual stages");
  }
  return static_cast<int>(stage / size);
}

}  // namespace

const StageMap::ModelChunk& StageMap::At(int stage, int index) const {
  CROSSDOCK_CHECK(stage >= 0 && stage < pp && index >= 0 && index < vpp);
  return chunks[static_cast<std::size_t>(index) * static_cast<std::size_t>(pp) + static_cast<std::size_t>(stage)];
}

const StageMap::ModelChunk& StageMap::ChunkOf(std::int64_t layer) const {
  CROSSDOCK_CHECK(!chunks.empty());
  // The last chunk that begins at or before the layer: empty chunks begin where a later one does.
  const auto after = std::upper_bound(chunks.begin(), chunks.end(), layer, [](std::int64_t wanted, const ModelChunk& chunk) { return wanted < chunk.first; });
  const auto found = after == chunks.begin() ? after : after - 1;
  return layer < found->first + found->count ? *found : chunks.back();
}

std::vector<std::int64_t> StageMap::Counts() const {
  std::vector<std::int64_t> counts;
  for (const ModelChunk& chunk : chunks) counts.push_back(chunk.count);
  return counts;
}

Result<StageMap> MakeStageMap(const ParallelLayout& layout, std::int64_t layers) {
  for (const auto& [flag, value] : {std::pair{"--tp", layout.tp}, std::pair{"--pp", layout.pp}, std::pair{"--vpp", layout.vpp}, std::pair{"--ep", layout.ep}, std::pair{"--etp", layout.expert_tp()}}) {
    if (value < 1) {
      return MakeError(ErrorCode::kUsage, fmt::format("{} must be at least 1", flag)).WithFound(fmt::format("{}", value));
    }
  }
  if (layers < 1) {
    return MakeError(ErrorCode::kUsage, "a model without layers cannot be divided into stages").WithFound(fmt::format("{} layers", layers));
  }
  CROSSDOCK_RETURN_IF_ERROR(CheckOneWay(layout));
  if (!layout.pipeline_layout.empty()) return FromString(layout, layers);
  const std::int64_t counted = layers + (layout.account_for_embedding ? 1 : 0) + (layout.account_for_loss ? 1 : 0);
  if (layout.pp > counted) {
    return MakeError(ErrorCode::kUsage, fmt::format("{} layers cannot fill {} pipeline stages", layers, layout.pp))
        .WithExpected(fmt::format("--pp of at most {}", counted))
        .WithFound(fmt::format("--pp {}", layout.pp));
  }
  const bool ends = layout.first_stage_layers || layout.last_stage_layers;
  CROSSDOCK_ASSIGN_OR_RETURN(const StageCounts stages, !layout.pipeline_layers.empty() ? Explicit(layout, layers)
                                                       : ends                          ? Uneven(layout, layers)
                                                                                       : Even(layout, layers));
  CROSSDOCK_ASSIGN_OR_RETURN(const int vpp, VirtualStages(layout, stages));
  return Deal(layout, stages, vpp, layers);
}

}  // namespace crossdock::layout
