// SPDX-License-Identifier: Apache-2.0
#include "plan/share_source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "plan/check.h"
#include "plan/chunk_index.h"
#include "plan/fingerprint.h"
#include "plan/jobs.h"

namespace crossdock::plan {
namespace {

/// The boxes of the target that a piece fills, each once.
void AddBoxes(const expr::Piece& piece, std::vector<Box>& out) {
  const std::size_t rank = piece.target_origin.size();
  Box box{piece.target_origin, Dims::Filled(rank, 1)};
  std::vector<expr::Loop> apart;  // loops that leave gaps
  for (std::size_t l = piece.loops.size(); l-- > 0;) {
    const expr::Loop& loop = piece.loops[l];
    const auto axis = static_cast<std::size_t>(loop.target_axis);
    if (loop.target_step == box.sizes[axis]) {
      box.sizes[axis] *= loop.count;
    } else {
      apart.push_back(loop);
    }
  }
  std::vector<Box> boxes = {std::move(box)};
  for (const expr::Loop& loop : apart) {
    std::vector<Box> next;
    for (const Box& one : boxes) {
      for (std::int64_t i = 0; i < loop.count; ++i) {
        next.push_back(one);
        next.back().offsets[static_cast<std::size_t>(loop.target_axis)] += i * loop.target_step;
      }
    }
    boxes = std::move(next);
  }
  out.insert(out.end(), boxes.begin(), boxes.end());
}

/// Joins boxes that touch along one axis and agree in all others, as long as there are any.
void JoinBoxes(std::vector<Box>& boxes) {
  if (boxes.empty()) return;
  const std::size_t rank = boxes.front().rank();
  for (std::size_t before = 0; before != boxes.size();) {
    before = boxes.size();
    for (std::size_t axis = rank; axis-- > 0;) {
      const auto others = [axis](const Box& box) {
        Box key = box;
        key.offsets[axis] = 0;
        key.sizes[axis] = 0;
        return key;
      };
      std::sort(boxes.begin(), boxes.end(), [&](const Box& a, const Box& b) {
        const Box x = others(a), y = others(b);
        return x != y ? x < y : a.offsets[axis] < b.offsets[axis];
      });
      std::vector<Box> joined;
      for (Box& box : boxes) {
        if (!joined.empty() && others(joined.back()) == others(box) &&
            joined.back().offsets[axis] + joined.back().sizes[axis] == box.offsets[axis]) {
          joined.back().sizes[axis] += box.sizes[axis];
        } else {
          joined.push_back(std::move(box));
        }
      }
      boxes = std::move(joined);
    }
  }
  std::sort(boxes.begin(), boxes.end());
}

/// Who feeds what of one job's tensor: one rank all of it, or each its boxes.
struct Fed {
  std::optional<int> alone;
  std::map<int, std::vector<Box>> boxes;
};

class Divider {
 public:
  Divider(const Catalog& source, const Catalog& target, const OwnerOf& owner, const Ranks& ranks)
      : source_(source), target_(target), owner_(owner), ranks_(ranks), index_(source.entries.size()) {}

  Result<Fed> Divide(const Job& job, std::size_t number) {
    std::set<int> owners;
    for (const int leaf : expr::LeafOrdinals(job.expr)) {
      const std::size_t chunks = EntryAt(source_, leaf).chunks.size();
      for (std::size_t c = 0; c < chunks; ++c) owners.insert(owner_(leaf, static_cast<std::int32_t>(c)));
    }
    owners.erase(kAnyRank);
    Fed fed;
    if (owners.empty()) fed.alone = static_cast<int>(number % static_cast<std::size_t>(ranks_.count));
    if (owners.size() == 1) fed.alone = *owners.begin();
    if (fed.alone) return fed;
    const std::vector<expr::Piece> pieces = expr::PullBack(job.expr, Box::Whole(job.expr->shape));
    std::vector<Box> anyone;
    for (const expr::Piece& piece : pieces) {
      if (piece.dequantize != nullptr) {
        return MakeError(ErrorCode::kUnsupported, "a tensor that is dequantized lies with several ranks").WithTensor(EntryAt(target_, job.entry).name);
      }
      if (piece.leaf < 0) {
        AddBoxes(piece, anyone);
        continue;
      }
      AddPiece(piece, &fed, &anyone);
    }
    if (!anyone.empty()) {
      std::vector<Box>& lowest = fed.boxes.empty() ? fed.boxes[*owners.begin()] : fed.boxes.begin()->second;
      lowest.insert(lowest.end(), anyone.begin(), anyone.end());
    }
    for (auto& [rank, boxes] : fed.boxes) JoinBoxes(boxes);
    if (fed.boxes.size() == 1) fed.alone = fed.boxes.begin()->first;
    return fed;
  }

 private:
  void AddPiece(const expr::Piece& piece, Fed* fed, std::vector<Box>* anyone) {
    const Entry& entry = EntryAt(source_, piece.leaf);
    std::optional<ChunkIndex>& index = index_[static_cast<std::size_t>(piece.leaf)];
    if (!index) index.emplace(entry);
    const Box bounds = expr::LeafBounds(piece);
    for (const std::int32_t c : index->Overlapping(bounds)) {
      const Box& chunk = entry.chunks[static_cast<std::size_t>(c)].box;
      const int rank = owner_(piece.leaf, c);
      std::vector<Box>& boxes = rank == kAnyRank ? *anyone : fed->boxes[rank];
      if (chunk.Contains(bounds)) {
        AddBoxes(piece, boxes);
      } else {
        for (const expr::Piece& part : expr::ClipLeaf(piece, chunk)) AddBoxes(part, boxes);
      }
    }
    std::erase_if(fed->boxes, [](const auto& item) { return item.second.empty(); });
  }

  const Catalog& source_;
  const Catalog& target_;
  const OwnerOf& owner_;
  const Ranks& ranks_;
  std::vector<std::optional<ChunkIndex>> index_;
};

/// Every box of every rank is whole blocks.
bool WholeBlocks(const Job& job, const Fed& fed) {
  if (job.fp8.whole) return false;
  const auto whole = [&](const Box& box) {
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const std::int64_t end = box.offsets[axis] + box.sizes[axis];
      if (box.offsets[axis] % job.block(axis) != 0) return false;
      if (end % job.block(axis) != 0 && end != job.expr->shape[axis]) return false;
    }
    return true;
  };
  return std::ranges::all_of(fed.boxes, [&](const auto& item) { return std::ranges::all_of(item.second, whole); });
}

/// What I do of one job.
struct Part {
  Job job;
  bool whole = false;          ///< all of it, as a plan for one process has it
  bool scales = false;         ///< of a pair in parts: I write them
  std::vector<Box> boxes;
};

std::vector<Box> WithinRegions(const Job& job, const Catalog& target, const std::vector<Box>& boxes) {
  std::vector<Box> out;
  for (const Box& region : PairRegions(job, target)) {
    for (const Box& box : boxes) {
      if (const auto common = Intersect(region, box)) out.push_back(*common);
    }
  }
  return out;
}

/// Of a part of a pair: within one chunk of q each.
std::vector<Box> WithinChunks(const Entry& entry, const std::vector<Box>& boxes) {
  std::vector<Box> out;
  for (const Chunk& chunk : entry.chunks) {
    for (const Box& box : boxes) {
      if (const auto common = Intersect(chunk.box, box)) out.push_back(*common);
    }
  }
  return out;
}

/// A box within a chunk, cut so that the elements of each part lie in a row in that chunk.
void AddContiguous(const Chunk& chunk, const Box& box, std::vector<Box>* out) {
  std::size_t last = box.rank();  // the innermost axis that is not whole
  while (last > 0 && box.sizes[last - 1] == chunk.box.sizes[last - 1]) --last;
  for (std::size_t axis = 0; axis + 1 < last; ++axis) {
    if (box.sizes[axis] == 1) continue;
    for (std::int64_t i = 0; i < box.sizes[axis]; ++i) {
      Box one = box;
      one.offsets[axis] += i;
      one.sizes[axis] = 1;
      AddContiguous(chunk, one, out);
    }
    return;
  }
  out->push_back(box);
}

/// Of a tensor whose chunks have a CRC-32: parts of which the order in the chunk is known.
std::vector<Box> InRows(const Entry& entry, const std::vector<Box>& boxes) {
  std::vector<Box> out;
  for (const Chunk& chunk : entry.chunks) {
    for (const Box& box : boxes) {
      if (const auto common = Intersect(chunk.box, box)) AddContiguous(chunk, *common, &out);
    }
  }
  return out;
}

}  // namespace

Result<Share> MakeShareOfSource(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs, const OwnerOf& owner,
                                const Ranks& ranks, const PlanOptions& options) {
  CROSSDOCK_RETURN_IF_ERROR(CheckInputs(source, target, exprs));
  CROSSDOCK_ASSIGN_OR_RETURN(std::vector<Job> jobs, MakeJobs(target, exprs));
  Divider divider(source, target, owner, ranks);
  Share share;
  std::vector<Part> mine;
  for (std::size_t number = 0; number < jobs.size(); ++number) {
    Job& job = jobs[number];
    CROSSDOCK_ASSIGN_OR_RETURN(Fed fed, divider.Divide(job, number));
    if (fed.alone) {
      if (*fed.alone == ranks.rank) mine.push_back({std::move(job), true, false, {}});
      continue;
    }
    const auto at = fed.boxes.find(ranks.rank);
    if (!job.is_pair()) {
      if (at == fed.boxes.end()) continue;
      std::vector<Box> boxes = options.contiguous_outputs ? InRows(EntryAt(target, job.entry), at->second) : std::move(at->second);
      mine.push_back({std::move(job), false, false, std::move(boxes)});
      continue;
    }
    if (WholeBlocks(job, fed)) {
      if (at == fed.boxes.end()) continue;
      std::vector<Box> boxes = WithinRegions(job, target, at->second);
      mine.push_back({std::move(job), false, false, std::move(boxes)});
      continue;
    }
    job.first_amax = share.amaxes;
    share.amaxes += CheckedCount(EntryAt(target, job.scales).shape);
    if (at == fed.boxes.end()) continue;
    std::vector<Box> boxes = WithinChunks(EntryAt(target, job.entry), at->second);
    const bool lowest = at == fed.boxes.begin();
    mine.push_back({std::move(job), false, lowest, std::move(boxes)});
  }
  const auto cut = [&](const TileLimits& limits, TaskBuilder& builder, std::vector<Task>& tasks) -> Status {
    for (const Part& part : mine) {
      if (part.whole) {
        CROSSDOCK_RETURN_IF_ERROR(CutJob(part.job, target, limits, builder, tasks));
        continue;
      }
      CROSSDOCK_RETURN_IF_ERROR(CutBoxes(part.job, target, part.boxes, limits, builder, tasks));
      if (!part.scales) continue;
      for (Task& task : builder.BuildScales(part.job)) tasks.push_back(std::move(task));
    }
    return OkStatus();
  };
  CROSSDOCK_ASSIGN_OR_RETURN(share.plan, PlanTasks(source, target, cut, options));
  share.plan.hash = PlanHash(source, target, exprs, {});
  return share;
}

}  // namespace crossdock::plan
