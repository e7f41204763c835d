// SPDX-License-Identifier: Apache-2.0
#include "expr/region.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace crossdock::expr {
namespace {

/// REQUIRES: b > 0. Rounds towards minus infinity.
std::int64_t FloorDiv(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/// Moves the start of the region by `iterations` of a loop.
void Advance(Region& region, const RegionLoop& loop, std::int64_t iterations) {
  region.offsets[At(loop.axis)] += iterations * loop.step;
  region.target_origin[At(loop.target_axis)] += iterations * loop.target_step;
}

/// The iterations [first, first + count) of loop k.
Region Narrow(Region region, std::size_t k, std::int64_t first, std::int64_t count) {
  Advance(region, region.loops[k], first);
  region.loops[k].count = count;
  if (count == 1) region.loops.erase(region.loops.begin() + static_cast<std::ptrdiff_t>(k));
  return region;
}

std::int64_t SpanOf(std::span<const RegionLoop> loops) {
  std::int64_t span = 0;
  for (const RegionLoop& l : loops) span += (l.count - 1) * l.step;
  return span;
}

/// Splits axis `from` by `radix`: quotients go to axis `to` (empty before), remainders stay. `todo` holds the loops of
/// `from` that are not placed yet, outermost first; they are not in the region.
class RadixSplit {
 public:
  RadixSplit(int from, int to, std::int64_t radix, std::vector<Region>& out)
      : from_(from), to_(to), radix_(radix), out_(out) {}

  void Run(Region region) {
    std::vector<RegionLoop> todo;
    for (const RegionLoop& l : region.loops) {
      if (l.axis == from_) todo.push_back(l);
    }
    std::erase_if(region.loops, [this](const RegionLoop& l) { return l.axis == from_; });
    Place(std::move(region), todo);
  }

 private:
  std::int64_t Phase(const Region& region) const { return region.offsets[At(from_)] % radix_; }

  void Place(Region region, std::span<const RegionLoop> todo) {
    if (Phase(region) + SpanOf(todo) < radix_) return Emit(std::move(region), todo);
    RegionLoop loop = todo.front();
    const auto rest = todo.subspan(1);
    if (loop.step % radix_ == 0) {
      loop.axis = to_;
      loop.step /= radix_;
      region.loops.push_back(loop);
      return Place(std::move(region), rest);
    }
    // Iterations after which the remainder repeats; those of one period may still carry.
    const std::int64_t period = radix_ / std::gcd(loop.step, radix_);
    if (radix_ % loop.step == 0 && Phase(region) >= loop.step) {
      // Start whole periods at the radix, or each of them would be cut in two.
      const std::int64_t head = (radix_ - Phase(region) + loop.step - 1) / loop.step;
      if (head < loop.count) return PlaceInTwo(std::move(region), loop, head, rest);
    }
    if (loop.count <= period) return PlaceRuns(region, loop, rest);
    const std::int64_t whole = loop.count / period * period;
    if (whole < loop.count) return PlaceInTwo(std::move(region), loop, whole, rest);
    PlaceLoops(std::move(region),
               {{loop.count / period, from_, loop.step * period, loop.target_axis, loop.target_step * period},
                {period, from_, loop.step, loop.target_axis, loop.target_step}},
               rest);
  }

  /// The whole rest of the way lies between two multiples of the radix.
  void Emit(Region region, std::span<const RegionLoop> todo) {
    region.offsets[At(to_)] += region.offsets[At(from_)] / radix_;
    region.offsets[At(from_)] %= radix_;
    region.loops.insert(region.loops.end(), todo.begin(), todo.end());
    out_.push_back(std::move(region));
  }

  void PlaceLoops(Region region, std::vector<RegionLoop> loops, std::span<const RegionLoop> rest) {
    std::erase_if(loops, [](const RegionLoop& l) { return l.count == 1; });
    loops.insert(loops.end(), rest.begin(), rest.end());
    Place(std::move(region), loops);
  }

  void PlaceInTwo(Region region, RegionLoop loop, std::int64_t first, std::span<const RegionLoop> rest) {
    RegionLoop second = loop;
    loop.count = first;
    second.count -= first;
    PlaceLoops(region, {loop}, rest);
    Advance(region, second, first);
    PlaceLoops(std::move(region), {second}, rest);
  }

  /// Runs of iterations between two multiples of the radix; an iteration that itself crosses one goes alone.
  void PlaceRuns(const Region& region, const RegionLoop& loop, std::span<const RegionLoop> rest) {
    const std::int64_t inner = SpanOf(rest);
    for (std::int64_t i = 0; i < loop.count;) {
      Region part = region;
      Advance(part, loop, i);
      const std::int64_t room = radix_ - 1 - Phase(part) - inner;
      RegionLoop run = loop;
      run.count = room < 0 ? 1 : std::min(loop.count - i, room / loop.step + 1);
      i += run.count;
      PlaceLoops(std::move(part), {run}, rest);
    }
  }

  int from_, to_;
  std::int64_t radix_;
  std::vector<Region>& out_;
};

/// Axes [out_first, out_last) and [in_first, in_last) hold the same elements; neither can be cut further.
struct AxisGroup {
  std::size_t out_first, out_last, in_first, in_last;
};

std::vector<AxisGroup> GroupAxes(const Shape& output, const Shape& input) {
  std::vector<AxisGroup> groups;
  std::size_t o = 0, i = 0;
  while (o < output.size() || i < input.size()) {
    AxisGroup g{o, o, i, i};
    std::int64_t out_count = 1, in_count = 1;
    do {
      if (i < input.size() && (in_count <= out_count || o == output.size())) {
        in_count *= input[i++];
      } else {
        out_count *= output[o++];
      }
    } while (in_count != out_count);
    g.out_last = o;
    g.in_last = i;
    groups.push_back(g);
  }
  return groups;
}

/// The region with each group on the last of its input axes, as one row-major index.
Region MergeGroups(const Shape& output, const Shape& input, const std::vector<AxisGroup>& groups, Region region) {
  Region merged;
  merged.offsets = Dims::Filled(input.size(), 0);
  merged.target_origin = region.target_origin;
  merged.loops.reserve(region.loops.size() + 2);
  for (const AxisGroup& g : groups) {
    if (g.in_first == g.in_last) continue;  // axes of extent 1: no loops, offset 0
    std::int64_t stride = 1;
    for (std::size_t a = g.out_first; a < g.out_last; ++a) stride *= output[a];
    for (std::size_t a = g.out_first; a < g.out_last; ++a) {
      stride /= output[a];
      merged.offsets[g.in_last - 1] += region.offsets[a] * stride;
      for (RegionLoop l : region.loops) {
        if (At(l.axis) != a) continue;
        l.axis = static_cast<int>(g.in_last - 1);
        l.step *= stride;
        merged.loops.push_back(l);
      }
    }
  }
  return merged;
}

}  // namespace

std::int64_t Region::Span(int axis) const {
  std::int64_t span = 0;
  for (const RegionLoop& l : loops) {
    if (l.axis == axis) span += (l.count - 1) * l.step;
  }
  return span;
}

Region RegionOfBox(const Box& box) {
  Region region;
  region.offsets = box.offsets;
  region.target_origin = box.offsets;
  for (std::size_t a = 0; a < box.rank(); ++a) {
    const int axis = static_cast<int>(a);
    if (box.sizes[a] > 1) region.loops.push_back({box.sizes[a], axis, 1, axis, 1});
  }
  return region;
}

void ClipAxis(Region region, int axis, std::int64_t lo, std::int64_t hi, std::vector<Region>& out) {
  const std::int64_t first = region.offsets[At(axis)];
  const std::int64_t span = region.Span(axis);
  if (first + span < lo || first >= hi || lo >= hi) return;
  if (first >= lo && first + span < hi) {
    out.push_back(std::move(region));
    return;
  }
  std::size_t k = 0;
  while (region.loops[k].axis != axis) ++k;
  const std::int64_t step = region.loops[k].step;
  const std::int64_t count = region.loops[k].count;
  const std::int64_t inner = span - (count - 1) * step;
  const std::int64_t full_first = std::max<std::int64_t>(0, -FloorDiv(first - lo, step));
  const std::int64_t full_last = std::min(count - 1, FloorDiv(hi - 1 - inner - first, step));
  // Of the iterations that the lower bound cuts, only the last can reach into the interval: inner < step.
  const std::int64_t left = full_first - 1;
  if (left >= 0 && left < count && first + left * step + inner >= lo) {
    ClipAxis(Narrow(region, k, left, 1), axis, lo, hi, out);
  }
  if (full_first <= full_last) out.push_back(Narrow(region, k, full_first, full_last - full_first + 1));
  const std::int64_t right = std::max(full_last + 1, full_first);
  if (right < count && first + right * step < hi) ClipAxis(Narrow(region, k, right, 1), axis, lo, hi, out);
}

std::vector<Region> ClipBox(Region region, const Box& box) {
  std::vector<Region> regions;
  regions.push_back(std::move(region));
  for (std::size_t a = 0; a < box.rank(); ++a) {
    std::vector<Region> clipped;
    for (Region& r : regions) {
      ClipAxis(std::move(r), static_cast<int>(a), box.offsets[a], box.offsets[a] + box.sizes[a], clipped);
    }
    regions = std::move(clipped);
  }
  return regions;
}

void MoveThroughTranspose(const std::vector<int>& axes, Region& region) {
  const Dims before = region.offsets;
  for (std::size_t i = 0; i < axes.size(); ++i) region.offsets[At(axes[i])] = before[i];
  for (RegionLoop& l : region.loops) l.axis = axes[At(l.axis)];
}

void MoveThroughReverse(int axis, std::int64_t extent, Region& region) {
  region.offsets[At(axis)] = extent - 1 - region.offsets[At(axis)] - region.Span(axis);
  for (RegionLoop& l : region.loops) {
    if (l.axis != axis) continue;
    region.target_origin[At(l.target_axis)] += (l.count - 1) * l.target_step;
    l.target_step = -l.target_step;
  }
}

std::vector<Region> MoveThroughReshape(const Shape& output, const Shape& input, Region region) {
  const std::vector<AxisGroup> groups = GroupAxes(output, input);
  std::vector<Region> regions;
  regions.push_back(MergeGroups(output, input, groups, std::move(region)));
  for (const AxisGroup& g : groups) {
    if (g.in_first == g.in_last) continue;
    std::int64_t radix = 1;
    for (std::size_t a = g.in_first; a < g.in_last; ++a) radix *= input[a];
    for (std::size_t a = g.in_first; a + 1 < g.in_last; ++a) {
      radix /= input[a];
      std::vector<Region> split;
      RadixSplit splitter(static_cast<int>(g.in_last - 1), static_cast<int>(a), radix, split);
      for (Region& r : regions) splitter.Run(std::move(r));
      regions = std::move(split);
    }
  }
  return regions;
}

Piece ToPiece(Region region, int leaf, std::vector<ElementOp> ops, const Node* dequantize) {
  Piece piece;
  piece.dequantize = dequantize;
  piece.leaf = leaf;
  piece.ops = std::move(ops);
  for (RegionLoop& l : region.loops) {
    if (l.target_step < 0) {
      Advance(region, l, l.count - 1);
      l.target_step = -l.target_step;
      l.step = -l.step;
    }
  }
  std::sort(region.loops.begin(), region.loops.end(), [](const RegionLoop& a, const RegionLoop& b) {
    return a.target_axis != b.target_axis ? a.target_axis < b.target_axis : a.target_step > b.target_step;
  });
  for (const RegionLoop& l : region.loops) {
    Loop* outer = piece.loops.empty() ? nullptr : &piece.loops.back();
    if (outer != nullptr && outer->target_axis == l.target_axis && outer->leaf_axis == l.axis &&
        outer->target_step == l.count * l.target_step && outer->leaf_step == l.count * l.step) {
      outer->count *= l.count;
      outer->target_step = l.target_step;
      outer->leaf_step = l.step;
      continue;
    }
    piece.loops.push_back({l.count, l.target_axis, l.target_step, l.axis, l.step});
  }
  piece.target_origin = region.target_origin;
  piece.leaf_origin = region.offsets;
  return piece;
}

}  // namespace crossdock::expr
