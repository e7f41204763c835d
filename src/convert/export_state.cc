// SPDX-License-Identifier: Apache-2.0
#include "convert/export_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "dialects/mcore/bucket_keys.h"
#include "dialects/mcore/legacy_keys.h"
#include "dialects/mcore/legacy_names.h"
#include "dialects/mcore/view_catalog.h"
#include "expr/expr.h"

namespace crossdock::convert {
namespace {

using dialects::mcore::kBucketSlots;
using dialects::mcore::kBucketStates;

/// `<dir>/model_optim_rng.pt#model/x` -> `<dir>/model_optim_rng.pt#optimizer/exp_avg/model/x`.
std::string StateEntry(const std::string& parameter, std::string_view state) {
  const std::size_t path = parameter.find('#') + 1;
  return fmt::format("{}optimizer/{}/{}", std::string_view(parameter).substr(0, path), state, std::string_view(parameter).substr(path));
}

/// One state of one parameter: who holds which elements of it, under which name.
struct Held {
  std::int64_t elements = 0;
  struct Holder {
    int rank = 0;
    std::string name;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Holder>> ranges;
};

/// In the order of their entries' names.
using AllHeld = std::map<std::string, Held>;

Status Take(const Catalog& run, const Twins& twins, const std::map<std::string, std::int32_t>& parameters, const std::string& name, int rank, AllHeld* all) {
  CROSSDOCK_ASSIGN_OR_RETURN(const StateName meant, ParseStateName(name));
  const auto parameter = parameters.find(std::string(meant.parameter));
  if (parameter == parameters.end()) {
    return MakeError(ErrorCode::kUsage, fmt::format("rank {} holds state of the optimizer for a parameter that it does not hold", rank)).WithTensor(name)
        .WithHint("compare the layout, this rank's place in it and the naming of its modules with the model's");
  }
  const Entry& entry = run.entries[static_cast<std::size_t>(parameter->second)];
  Held& held = (*all)[StateEntry(twins.First(entry.name), meant.state)];
  held.elements = CheckedCount(entry.shape);
  const auto range = meant.range.value_or(std::pair(std::int64_t{0}, held.elements));
  if (range.second > held.elements) {
    return MakeError(ErrorCode::kUsage, "a part of an optimizer's state reaches beyond its parameter").WithTensor(name).WithExpected(fmt::format("{} elements", held.elements));
  }
  std::vector<Held::Holder>& holders = held.ranges[range];
  if (!holders.empty() && holders.back().rank == rank) return MakeError(ErrorCode::kUsage, "a rank names a tensor of its optimizer twice").WithTensor(name);
  holders.push_back({rank, name});
  return OkStatus();
}

/// Every element once, ranks that hold the same part aside.
Status CheckWhole(const Held& held) {
  std::int64_t end = 0;
  for (const auto& [range, holders] : held.ranges) {
    const bool over = range.first < end;
    if (range.first != end) {
      return MakeError(over ? ErrorCode::kUsage : ErrorCode::kIncomplete, over ? "ranks hold parts of an optimizer's state that overlap" : "no rank holds a part of an optimizer's state")
          .WithTensor(holders.front().name).WithExpected(fmt::format("elements from {}", end)).WithFound(fmt::format("elements {} to {}", range.first, range.second));
    }
    end = range.second;
  }
  if (end == held.elements) return OkStatus();
  return MakeError(ErrorCode::kIncomplete, "no rank holds a part of an optimizer's state").WithTensor(held.ranges.rbegin()->second.front().name)
      .WithExpected(fmt::format("{} elements", held.elements)).WithFound(fmt::format("{}", end));
}

}  // namespace

Twins::Twins(const Catalog& run, const LayoutOptions& layout) {
  std::map<std::string, std::tuple<int, int, int>> places;  // stage, tensor and expert rank of a directory
  for (int stage = 0; stage < layout.pp; ++stage) {
    for (int tensor = 0; tensor < layout.tp; ++tensor) {
      for (int expert = 0; expert < layout.ep; ++expert) places[dialects::mcore::RankDirName(tensor, stage, layout.pp, expert, layout.ep)] = {stage, tensor, expert};
    }
  }
  const int expert_tp = layout.etp > 0 ? layout.etp : layout.tp;
  std::map<std::tuple<int, int, int, std::string>, std::string> named;
  for (const Entry& entry : run.entries) {
    const std::optional<std::string> name = LiveName(entry.name);
    const auto place = places.find(entry.name.substr(0, entry.name.find('/')));
    if (!name || place == places.end()) {
      first_[entry.name] = entry.name;
      continue;
    }
    const auto [stage, tensor, expert] = place->second;
    const std::string path = entry.name.substr(entry.name.find('#'));
    const bool of_experts = dialects::mcore::ParseLegacyName(std::string_view(path).substr(path.find('/') + 1)).of_experts();
    first_[entry.name] = named.try_emplace({stage, of_experts ? tensor % expert_tp : tensor, of_experts ? expert : -1, path}, entry.name).first->second;
  }
}

Result<RunStates> AddStates(const std::vector<std::vector<std::string>>& names, const std::vector<std::string>& directories, const Twins& twins, Catalog* run) {
  std::map<std::string, std::map<std::string, std::int32_t>> parameters;  // by directory, then name
  for (std::size_t i = 0; i < run->entries.size(); ++i) {
    const std::string& entry = run->entries[i].name;
    if (const auto name = LiveName(entry)) parameters[entry.substr(0, entry.find('/'))][*name] = static_cast<std::int32_t>(i);
  }
  AllHeld all;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    for (const std::string& name : names[rank]) {
      CROSSDOCK_RETURN_IF_ERROR(Take(*run, twins, parameters[directories[rank]], name, static_cast<int>(rank), &all));
    }
  }
  for (const auto& [entry, held] : all) {
    CROSSDOCK_RETURN_IF_ERROR(CheckWhole(held));
    Entry made{entry, Slot::kParam, DType::kF32, {held.elements}, {}};
    for (const auto& [range, holders] : held.ranges) {
      Chunk chunk;
      chunk.box = Box{{range.first}, {range.second - range.first}};
      made.chunks.push_back(std::move(chunk));
    }
    run->entries.push_back(std::move(made));
  }
  run->SortEntries();
  RunStates out;
  out.parts.resize(names.size());
  for (const auto& [entry, held] : all) {
    LivePart part{run->Find(entry), 0};
    for (const auto& [range, holders] : held.ranges) {
      for (const Held::Holder& holder : holders) {
        out.parts[static_cast<std::size_t>(holder.rank)][holder.name] = part;
        out.holders[part].push_back(holder.rank);
      }
      ++part.chunk;
    }
  }
  return out;
}

Status SeeStates(const Catalog& run, const Twins& twins, dialects::mcore::OptimizerForm form, dialects::mcore::GlobalView* view) {
  const std::size_t parameters = view->catalog.entries.size();
  for (std::size_t i = 0; i < parameters; ++i) {
    const expr::Expr parameter = view->exprs[i];
    std::vector<std::string> has;
    for (std::size_t s = 0; s < kBucketStates.size(); ++s) {
      const std::string_view state = kBucketStates[s];
      const auto entry_of = [&](int leaf) { return run.Find(StateEntry(twins.First(run.entries[static_cast<std::size_t>(leaf)].name), state)); };
      std::string with, without;
      for (const int leaf : expr::LeafOrdinals(parameter)) {
        (entry_of(leaf) < 0 ? without : with) = run.entries[static_cast<std::size_t>(leaf)].name;
      }
      if (with.empty()) continue;
      has.emplace_back(state);
      if (!without.empty()) {
        return MakeError(ErrorCode::kUsage, fmt::format("some ranks hold {} of a parameter and others do not", state)).WithTensor(view->catalog.entries[i].name)
            .WithExpected(fmt::format("it for `{}` too", without)).WithFound(fmt::format("it for `{}`", with));
      }
      CROSSDOCK_ASSIGN_OR_RETURN(const expr::Expr whole, expr::Substitute(parameter, [&](int leaf) -> Result<expr::Expr> {
        const std::int32_t at = entry_of(leaf);
        const Entry& flat = run.entries[static_cast<std::size_t>(at)];
        return expr::Reshape(expr::Leaf(at, flat.dtype, flat.shape), run.entries[static_cast<std::size_t>(leaf)].shape);
      }));
      view->catalog.entries.push_back({dialects::mcore::SlotKey(kBucketSlots[s], view->catalog.entries[i].name, form), Slot::kParam, whole->dtype, whole->shape, {}});
      view->exprs.push_back(expr::Simplify(whole));
    }
    // A parameter without any was frozen.
    const bool moments = std::ranges::find(has, "exp_avg") != has.end() && std::ranges::find(has, "exp_avg_sq") != has.end();
    const bool master = std::ranges::find(has, "param") != has.end();
    if (has.empty() || (moments && (master || form == dialects::mcore::OptimizerForm::kPlain))) continue;
    return MakeError(ErrorCode::kIncomplete, "a parameter has a part of its optimizer's state only").WithTensor(view->catalog.entries[i].name)
        .WithExpected(form == dialects::mcore::OptimizerForm::kPlain ? "both moments, and a master copy where the parameter is not float32 itself" : "param, exp_avg and exp_avg_sq")
        .WithFound(fmt::format("{}", fmt::join(has, ", ")));
  }
  return dialects::mcore::SortView(view);
}

}  // namespace crossdock::convert
