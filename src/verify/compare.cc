// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "expr/dequantize.h"
#include "verify/difference.h"
#include "verify/evaluate.h"
#include "verify/verify.h"

namespace crossdock::verify {
namespace {

using Key = std::pair<std::string, Slot>;

std::string Label(const dialects::HubTensor& t) {
  return t.slot == Slot::kParam ? t.name : fmt::format("{} ({})", t.name, SlotName(t.slot));
}

struct Pair {
  const dialects::HubTensor* a;
  const dialects::HubTensor* b;
};

/// Everything that is counted for a tensor, both in the total and under its slot.
struct Tally {
  Comparison* out;
  std::map<Slot, Counts> slots;
  template <typename F>
  void Count(Slot slot, F f) {
    f(out->total);
    f(slots[slot]);
  }
};

std::vector<Pair> Match(const Side& a, const Side& b, const Options& options, Tally* tally) {
  std::map<Key, const dialects::HubTensor*> right;
  const auto wanted = [&](const dialects::HubTensor& t) { return !options.params_only || t.slot == Slot::kParam; };
  for (const auto& t : b.hub->tensors) {
    if (!wanted(t)) continue;
    right.emplace(Key{t.name, t.slot}, &t);
    tally->Count(t.slot, [](Counts& c) { ++c.num_roundtrip; });
  }
  std::vector<Pair> pairs;
  for (const auto& t : a.hub->tensors) {
    if (!wanted(t)) continue;
    tally->Count(t.slot, [](Counts& c) { ++c.num_baseline; });
    const auto it = right.find(Key{t.name, t.slot});
    if (it == right.end()) {
      tally->out->missing_keys.push_back(Label(t));
      continue;
    }
    tally->Count(t.slot, [](Counts& c) { ++c.num_common; });
    if (t.shape != it->second->shape) {
      tally->out->shape_mismatches.push_back(
          fmt::format("{}: {} against {}", Label(t), ToString(t.shape), ToString(it->second->shape)));
    } else {
      pairs.push_back({&t, it->second});
    }
    right.erase(it);
  }
  for (const auto& [key, t] : right) tally->out->extra_keys.push_back(Label(*t));
  return pairs;
}

/// Where the first stored byte of a tensor lies, so that one side is read in the order of its files.
std::tuple<std::int32_t, std::int64_t> FirstByte(const Side& side, const dialects::HubTensor& t) {
  const std::vector<int> leaves = expr::LeafOrdinals(t.expr);
  if (leaves.empty()) return {-1, 0};
  const auto& chunks = side.reader->catalog().entries[static_cast<std::size_t>(leaves.front())].chunks;
  // A stacked tensor's layers are told apart by which of its chunks the expression reaches.
  const expr::Expr& root = expr::IsQuantize(t.expr) ? t.expr->inputs[0] : t.expr;
  const std::vector<expr::Piece> pieces =
      expr::PullBack(root, Box{Dims::Filled(root->shape.size(), 0), Dims::Filled(root->shape.size(), 1)});
  for (const expr::Piece& piece : pieces) {
    if (piece.leaf != leaves.front()) continue;
    Box bounds = expr::LeafBounds(piece);
    if (piece.dequantize != nullptr) bounds = expr::StoredBoxesOf(*piece.dequantize, bounds).values;
    for (const Chunk& chunk : chunks) {
      if (chunk.box.rank() == 0 || Intersect(chunk.box, bounds)) return {chunk.file, chunk.bytes.offset};
    }
  }
  return chunks.empty() ? std::tuple{-1, std::int64_t{0}} : std::tuple{chunks[0].file, chunks[0].bytes.offset};
}

void SortByPlace(const Side& side, std::vector<Pair>* pairs) {
  std::vector<std::pair<std::tuple<std::int32_t, std::int64_t>, Pair>> keyed;
  keyed.reserve(pairs->size());
  for (const Pair& p : *pairs) {
    const bool whole = CheckedCount(p.a->shape) != 0;
    keyed.emplace_back(whole ? FirstByte(side, *p.a) : std::tuple{-1, std::int64_t{0}}, p);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  for (std::size_t i = 0; i < keyed.size(); ++i) (*pairs)[i] = keyed[i].second;
}

void Judge(const Pair& p, const TensorDifference& d, const Options& options, Tally* tally, bool* failed) {
  Comparison& out = *tally->out;
  const std::string label = Label(*p.a);
  const bool same_type = p.a->dtype == p.b->dtype;
  const bool identical = same_type && d.differing_bits == 0;
  // A rule marked inexact (scales, offsets) may cost the last place; nothing else may.
  // The arithmetic of FP8 is written down to the last bit.
  const bool quantized = expr::IsQuantize(p.a->expr) || expr::IsQuantize(p.b->expr);
  const bool allowed_ulp = same_type && !quantized && d.beyond_ulp == 0 && (expr::IsInexact(p.a->expr) || expr::IsInexact(p.b->expr));
  const bool good = options.exact == Exact::kBit ? identical || allowed_ulp : d.not_close == 0;
  if (!same_type) {
    out.dtype_mismatches.push_back(fmt::format("{}: {} against {}", label, DTypeName(p.a->dtype), DTypeName(p.b->dtype)));
  }
  if (d.nonfinite != 0) out.nonfinite.push_back(fmt::format("{}: {} of {}", label, d.nonfinite, d.elements));
  tally->Count(p.a->slot, [&](Counts& c) {
    c.num_bit_identical += static_cast<std::int64_t>(identical);
    c.num_exact_matches += static_cast<std::int64_t>(d.not_exact == 0);
    c.num_close_matches += static_cast<std::int64_t>(d.not_close == 0);
    c.num_different += static_cast<std::int64_t>(!good);
  });
  out.max_abs_diff = std::max(out.max_abs_diff, d.max_abs);
  if (d.differing_bits != 0) out.worst.push_back({label, d.max_abs, d.first_index, d.incomparable, p.a->shape});
  if (!good) {
    out.mismatched_keys.push_back(label);
    *failed = true;
  }
}

template <typename T>
void CompareCounter(const char* name, const std::optional<T>& a, const std::optional<T>& b, Comparison* out) {
  if (a == b) return;
  const auto text = [](const std::optional<T>& v) { return v ? fmt::format("{}", *v) : std::string("absent"); };
  out->counter_differences.push_back(fmt::format("{}: {} against {}", name, text(a), text(b)));
}

void CompareCounters(const dialects::HubState& a, const dialects::HubState& b, Comparison* out) {
  CompareCounter("step", a.counters.step, b.counters.step, out);
  CompareCounter("adam_count", a.counters.adam_count, b.counters.adam_count, out);
  CompareCounter("muon_count", a.counters.muon_count, b.counters.muon_count, out);
  CompareCounter("consumed_train_samples", a.counters.consumed_train_samples, b.counters.consumed_train_samples, out);
}

}  // namespace

Result<Comparison> Compare(const Side& a, const Side& b, const Options& options) {
  Comparison out;
  Tally tally{&out, {}};
  std::vector<Pair> pairs = Match(a, b, options, &tally);
  SortByPlace(a, &pairs);

  std::int64_t total = 0;
  for (const Pair& p : pairs) total += CheckedCount(p.a->shape) * ElementSize(p.a->dtype);
  // Two tiles and two scratches of up to twice a tile; 16 MiB is plenty for sequential reading.
  const std::int64_t tile_bytes = std::clamp<std::int64_t>(options.memory / 16, 1 << 16, 16 << 20);

  Evaluator left(a, options.memory / 4);
  Evaluator right(b, options.memory / 4);
  std::vector<std::byte> x;
  std::vector<std::byte> y;
  std::int64_t done = 0;
  double sum_abs = 0;
  std::int64_t elements = 0;
  bool failed = false;
  for (const Pair& p : pairs) {
    TensorDifference d;
    const std::int64_t element = ElementSize(p.a->dtype);
    for (const Box& box : RowMajorTiles(p.a->shape, tile_bytes / 8)) {
      if (options.stop.stop_requested()) return MakeError(ErrorCode::kCancelled, "the comparison was interrupted");
      CROSSDOCK_RETURN_IF_ERROR(left.Evaluate(*p.a, box, x).WithContext("reading " + a.label));
      CROSSDOCK_RETURN_IF_ERROR(right.Evaluate(*p.b, box, y).WithContext("reading " + b.label));
      Accumulate(x, p.a->dtype, y, p.b->dtype, d.elements, &d);
      done += box.count() * element;
      if (options.on_progress) options.on_progress(done, total);
    }
    sum_abs += d.sum_abs;
    elements += d.elements;
    Judge(p, d, options, &tally, &failed);
  }

  out.mean_abs_diff = elements == 0 ? 0 : sum_abs / static_cast<double>(elements);
  std::stable_sort(out.worst.begin(), out.worst.end(),
                   [](const Difference& p, const Difference& q) {
                     return std::pair(p.incomparable != 0, p.max_abs) > std::pair(q.incomparable != 0, q.max_abs);
                   });
  if (out.worst.size() > 10) out.worst.resize(10);
  for (const auto& [slot, counts] : tally.slots) out.slots.emplace_back(std::string(SlotName(slot)), counts);
  if (!options.params_only) CompareCounters(*a.hub, *b.hub, &out);
  // Nothing in common proves nothing: an empty intersection must fail.
  out.passed = !failed && out.total.num_common > 0 && out.missing_keys.empty() && out.extra_keys.empty() &&
               out.shape_mismatches.empty() && out.counter_differences.empty();
  return out;
}

}  // namespace crossdock::verify
