// SPDX-License-Identifier: Apache-2.0
#include "plan/task_builder.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "plan/jobs.h"
#include "plan/read_boxes.h"

namespace crossdock::plan {
namespace {

constexpr std::int64_t kAlign = 64;

const Chunk& ChunkAt(const Entry& entry, std::int32_t i) { return entry.chunks[static_cast<std::size_t>(i)]; }

Box Relative(const Box& box, const Box& chunk) {
  Box out = box;
  for (std::size_t i = 0; i < box.rank(); ++i) out.offsets[i] -= chunk.offsets[i];
  return out;
}

/// Takes out the moves that carry a whole read unchanged to one contiguous place of the scratch: it is read right there. Gives
/// that place for each read, in elements; -1: none.
std::vector<std::int64_t> ReadIntoScratch(Task& task) {
  std::vector<std::int64_t> place(task.reads.size(), -1);
  std::vector<int> uses(task.reads.size(), 0);
  for (const Dequantize& d : task.dequantize) {
    ++uses[static_cast<std::size_t>(d.values)];
    ++uses[static_cast<std::size_t>(d.scales)];
  }
  for (const Move& m : task.moves) {
    if (m.read >= 0 && !m.dequantized) ++uses[static_cast<std::size_t>(m.read)];
  }
  std::erase_if(task.moves, [&](const Move& m) {
    if (m.read < 0 || m.dequantized || !m.ops.empty() || m.from != m.to) return false;
    const auto read = static_cast<std::size_t>(m.read);
    const auto& dims = m.copy.dims;
    const bool one = dims.empty() || (dims.size() == 1 && dims[0].from_stride == 1 && dims[0].to_stride == 1);
    const std::int64_t count = dims.empty() ? 1 : dims[0].count;
    if (uses[read] != 1 || !one || m.copy.from != 0 || count * ElementSize(m.from) != task.reads[read].bytes) return false;
    place[read] = m.copy.to;
    return true;
  });
  return place;
}

/// Gives every box its place in the buffer.
void LayOutBuffer(Task& task) {
  std::int64_t at = 0;
  const auto take = [&at](std::int64_t bytes) { return std::exchange(at, RoundUp(at + bytes, kAlign)); };
  for (Output& o : task.outputs) o.buffer_offset = take(o.bytes);
  std::vector<std::int64_t> in_scratch(task.reads.size(), -1);
  if (task.quantize) {
    Quantize q = *task.quantize;
    q.scratch_offset = take(q.rows * q.cols * ElementSize(q.dtype));
    in_scratch = ReadIntoScratch(task);
    for (std::int64_t& place : in_scratch) {
      if (place >= 0) place = q.scratch_offset + place * ElementSize(q.dtype);
    }
    task.quantize = std::make_shared<const Quantize>(std::move(q));
  }
  for (Dequantize& d : task.dequantize) d.buffer_offset = take(d.bytes);
  for (std::size_t r = 0; r < task.reads.size(); ++r) {
    task.reads[r].buffer_offset = in_scratch[r] >= 0 ? in_scratch[r] : take(task.reads[r].bytes);
  }
  task.buffer_bytes = at;
}

}  // namespace

TaskBuilder::TaskBuilder(const Catalog& source, const Catalog& target)
    : source_(&source), target_(&target), source_index_(source.entries.size()), target_index_(target.entries.size()) {}

const ChunkIndex& TaskBuilder::SourceIndex(std::int32_t entry) {
  std::optional<ChunkIndex>& index = source_index_[static_cast<std::size_t>(entry)];
  if (!index) index.emplace(EntryAt(*source_, entry));
  return *index;
}

const ChunkIndex& TaskBuilder::TargetIndex(std::int32_t entry) {
  std::optional<ChunkIndex>& index = target_index_[static_cast<std::size_t>(entry)];
  if (!index) index.emplace(EntryAt(*target_, entry));
  return *index;
}

std::vector<TaskBuilder::Place> TaskBuilder::Outputs(std::int32_t entry, const Box& tile) {
  std::vector<Place> out;
  for (const std::int32_t c : TargetIndex(entry).Overlapping(tile)) {
    out.push_back({entry, c, *Intersect(ChunkAt(EntryAt(*target_, entry), c).box, tile)});
  }
  return out;
}

/// Which of `sinks` a region meets. A stack of small layers has thousands of both in one task: those of a job's own
/// chunks are looked up, not walked over.
std::vector<std::size_t> TaskBuilder::SinksOf(const Job& job, const std::vector<Place>& sinks, const Box& region) {
  std::vector<std::size_t> out;
  if (job.is_pair()) {
    if (Intersect(region, sinks[0].box)) out.push_back(0);
    return out;
  }
  for (const std::int32_t c : TargetIndex(job.entry).Overlapping(region)) {
    const auto at = std::lower_bound(sinks.begin(), sinks.end(), c,
                                     [](const Place& place, std::int32_t chunk) { return place.chunk < chunk; });
    if (at == sinks.end() || at->chunk != c || !Intersect(region, at->box)) continue;
    out.push_back(static_cast<std::size_t>(at - sinks.begin()));
  }
  return out;
}

std::int64_t FileOffset(const Catalog& source, const Read& read) {
  const Entry& entry = EntryAt(source, read.entry);
  const Chunk& chunk = ChunkAt(entry, read.chunk);
  const Dims strides = RowMajorStrides(chunk.box.sizes);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) elements += strides[i] * read.box.offsets[i];
  if (chunk.encoding == ChunkEncoding::kEncoded) {  // somewhere within it: an encoded chunk does not reach into its neighbours
    const double part = static_cast<double>(elements) / static_cast<double>(std::max<std::int64_t>(chunk.box.count(), 1));
    return chunk.bytes.offset + static_cast<std::int64_t>(part * static_cast<double>(std::max<std::int64_t>(chunk.bytes.length - 1, 0)));
  }
  return chunk.bytes.offset + elements * ElementSize(entry.dtype);
}

TaskBuilder::DequantizeKey TaskBuilder::KeyOf(const expr::Node& node) {
  const bool blocks = node.op == expr::Op::kDequantize;
  return {node.inputs[0]->leaf, node.inputs[1]->leaf, blocks ? node.block().rows : 0, blocks ? node.block().cols : 0, node.dtype};
}

const TaskBuilder::Dequantized& TaskBuilder::DequantizedBy(const expr::Node& node) {
  const auto [at, is_new] = dequantized_.try_emplace(KeyOf(node));
  Dequantized& made = at->second;
  if (!is_new) return made;
  made.entry.dtype = node.dtype;
  made.entry.shape = node.shape;
  const Entry& values = EntryAt(*source_, node.inputs[0]->leaf);
  const Entry& scales = EntryAt(*source_, node.inputs[1]->leaf);
  for (std::size_t v = 0; v < values.chunks.size(); ++v) {
    for (std::size_t s = 0; s < scales.chunks.size(); ++s) {
      const std::optional<Box> box = expr::MadeOf(node, values.chunks[v].box, scales.chunks[s].box);
      if (!box) continue;
      made.entry.chunks.emplace_back().box = *box;
      made.stored.emplace_back(static_cast<std::int32_t>(v), static_cast<std::int32_t>(s));
    }
  }
  made.index.emplace(made.entry);
  return made;
}

TaskBuilder::Leaves TaskBuilder::LeavesOf(const expr::Piece& piece) {
  if (piece.dequantize != nullptr) {
    const Dequantized& made = DequantizedBy(*piece.dequantize);
    return {&made.entry, &*made.index};
  }
  return {&EntryAt(*source_, piece.leaf), &SourceIndex(piece.leaf)};
}

/// Meets pieces with stored chunks. reads[r] and dequantized[d] are what is taken from task.reads[r] and
/// task.dequantize[d]; from a read that is only dequantized nothing.
void TaskBuilder::AddReads(const std::vector<expr::Piece>& pieces, Task& task, std::vector<Taken>& reads,
                           std::vector<Taken>& dequantized) {
  using Chunked = std::vector<expr::Piece>;
  std::map<std::pair<std::int32_t, std::int32_t>, Chunked> by_chunk;
  std::map<std::pair<DequantizeKey, std::int32_t>, Chunked> by_dequantized;
  for (const expr::Piece& piece : pieces) {
    if (piece.leaf < 0) continue;
    const Leaves leaves = LeavesOf(piece);
    const Box bounds = expr::LeafBounds(piece);
    std::int64_t met = 0;
    for (const std::int32_t c : leaves.index->Overlapping(bounds)) {
      const Box& chunk = ChunkAt(*leaves.entry, c).box;
      std::vector<expr::Piece> parts =
          chunk.Contains(bounds) ? std::vector<expr::Piece>{piece} : expr::ClipLeaf(piece, chunk);
      for (expr::Piece& part : parts) {
        met += part.count();
        Chunked& all = piece.dequantize == nullptr ? by_chunk[{piece.leaf, c}] : by_dequantized[{KeyOf(*piece.dequantize), c}];
        all.push_back(std::move(part));
      }
    }
    CROSSDOCK_CHECK(met == piece.count());  // CheckInputs saw to it that chunks cover their tensor
  }
  for (auto& [key, parts] : by_chunk) {
    const Entry& entry = EntryAt(*source_, key.first);
    const Box& chunk = ChunkAt(entry, key.second).box;
    const std::int64_t element = ElementSize(entry.dtype);
    for (ReadBox& read : MakeReadBoxes(std::move(parts), chunk, element)) {
      task.reads.push_back({key.first, key.second, Relative(read.box, chunk), 0, read.box.count() * element});
      reads.push_back({read.box, std::move(read.pieces)});
    }
  }
  for (auto& [key, parts] : by_dequantized) {
    const expr::Node& node = *parts.front().dequantize;
    const Dequantized& made = DequantizedBy(node);
    const auto chunk = static_cast<std::size_t>(key.second);
    for (ReadBox& read : MakeReadBoxes(std::move(parts), made.entry.chunks[chunk].box, 1)) {
      AddDequantize(node, made.stored[chunk], read.box, task, reads);
      dequantized.push_back({read.box, std::move(read.pieces)});
    }
  }
}

/// The two reads of `box`, and the step that makes it of them.
void TaskBuilder::AddDequantize(const expr::Node& node, std::pair<std::int32_t, std::int32_t> chunks, const Box& box,
                                Task& task, std::vector<Taken>& reads) {
  const expr::StoredBoxes stored = expr::StoredBoxesOf(node, box);
  const auto read = [&](const expr::Expr& leaf, std::int32_t c, const Box& part) {
    const Box& chunk = ChunkAt(EntryAt(*source_, leaf->leaf), c).box;
    task.reads.push_back({leaf->leaf, c, Relative(part, chunk), 0, part.count() * ElementSize(leaf->dtype)});
    reads.push_back({part, {}});
    return static_cast<std::int32_t>(task.reads.size() - 1);
  };
  Dequantize step;
  step.values = read(node.inputs[0], chunks.first, stored.values);
  step.scales = read(node.inputs[1], chunks.second, stored.scales);
  step.tile = expr::TileOf(node, box);
  step.values_type = node.inputs[0]->dtype;
  step.scales_type = node.inputs[1]->dtype;
  step.to = node.dtype;
  step.bytes = box.count() * ElementSize(node.dtype);
  task.dequantize.push_back(step);
}

/// In the order of the files, so that neighbours can be read together.
void TaskBuilder::SortReads(Task& task, std::vector<Taken>& reads) const {
  std::vector<std::int32_t> order(task.reads.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [](auto& list, std::int32_t i) -> auto& { return list[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto key = [&](const Read& r) {
      return std::make_pair(ChunkAt(EntryAt(*source_, r.entry), r.chunk).file, FileOffset(*source_, r));
    };
    return key(at(task.reads, a)) < key(at(task.reads, b));
  });
  std::vector<Read> sorted;
  std::vector<Taken> taken;
  std::vector<std::int32_t> place(order.size());
  for (const std::int32_t r : order) {
    at(place, r) = static_cast<std::int32_t>(sorted.size());
    sorted.push_back(std::move(at(task.reads, r)));
    taken.push_back(std::move(at(reads, r)));
  }
  for (Dequantize& d : task.dequantize) {
    d.values = at(place, d.values);
    d.scales = at(place, d.scales);
  }
  task.reads = std::move(sorted);
  reads = std::move(taken);
}

std::vector<TaskBuilder::Place> TaskBuilder::AddOutputs(const Job& job, const Box& tile, Task& task) {
  std::vector<Place> places = Outputs(job.entry, tile);
  if (job.is_part()) {
    CROSSDOCK_CHECK(places.size() == 1);
  } else if (job.is_pair()) {
    const std::vector<Place> scales = Outputs(job.scales, ScalesBox(job, tile));
    CROSSDOCK_CHECK(places.size() == 1 && scales.size() == 1);
    places.push_back(scales[0]);
  }
  for (const Place& p : places) {
    const Entry& entry = EntryAt(*target_, p.entry);
    task.outputs.push_back(
        {p.entry, p.chunk, Relative(p.box, ChunkAt(entry, p.chunk).box), 0, p.box.count() * ElementSize(entry.dtype)});
  }
  return places;
}

Task TaskBuilder::BuildOutputs(const Job& job, const Box& tile) {
  Task task;
  AddOutputs(job, tile, task);
  return task;
}

QuantizePart TaskBuilder::PartOf(const Job& job) {
  const std::int64_t cols = job.block(1);
  return {job.first_amax, CeilDiv(job.expr->shape[1], cols), job.block(0), cols, 0, 0};
}

std::vector<Task> TaskBuilder::BuildScales(const Job& job) {
  CROSSDOCK_CHECK(job.is_part());
  std::vector<Task> tasks;
  const Entry& entry = EntryAt(*target_, job.scales);
  for (std::size_t c = 0; c < entry.chunks.size(); ++c) {
    Task task;
    const std::int64_t bytes = entry.chunks[c].box.count() * ElementSize(entry.dtype);
    task.outputs.push_back({job.scales, static_cast<std::int32_t>(c), Box::Whole(entry.chunks[c].box.sizes), 0, bytes});
    task.quantize = std::make_shared<const Quantize>(Quantize{job.fp8, job.expr->dtype, 0, 0, 0, -1, 0, {}, PartOf(job)});
    LayOutBuffer(task);
    tasks.push_back(std::move(task));
  }
  return tasks;
}

Task TaskBuilder::Build(const Job& job, const Box& tile) {
  Task task;
  std::vector<Place> places = AddOutputs(job, tile, task);
  if (job.is_pair()) {
    Quantize step{job.fp8, job.expr->dtype, tile.sizes[0], tile.sizes[1], 0, 0, 1, {}, {}};
    if (job.is_part()) {
      step.part = PartOf(job);
      step.part->row = tile.offsets[0];
      step.part->col = tile.offsets[1];
      step.s_output = -1;
    }
    task.quantize = std::make_shared<const Quantize>(std::move(step));
  }
  // Where elements go: the outputs, or the scratch, which is the tile itself.
  const std::vector<Place> sinks = job.is_pair() ? std::vector<Place>{{0, 0, tile}} : std::move(places);
  const auto add_moves = [&](const expr::Piece& piece, std::int32_t read, const Box& read_box, DType from) {
    const Box bounds = expr::TargetBounds(piece);
    for (const std::size_t o : SinksOf(job, sinks, bounds)) {
      const std::vector<expr::Piece> parts =
          sinks[o].box.Contains(bounds) ? std::vector<expr::Piece>{piece} : expr::ClipTarget(piece, sinks[o].box);
      for (const expr::Piece& part : parts) {
        task.moves.push_back({read, static_cast<std::int32_t>(o), expr::ToCopy(part, read_box, sinks[o].box), from,
                              job.expr->dtype, part.dequantize != nullptr, part.ops});
      }
    }
  };

  const std::vector<expr::Piece> pieces = expr::PullBack(job.expr, tile);
  std::vector<Taken> reads, dequantized;
  AddReads(pieces, task, reads, dequantized);
  SortReads(task, reads);
  for (std::size_t r = 0; r < reads.size(); ++r) {
    const DType dtype = EntryAt(*source_, task.reads[r].entry).dtype;
    for (const expr::Piece& p : reads[r].pieces) add_moves(p, static_cast<std::int32_t>(r), reads[r].box, dtype);
  }
  for (std::size_t d = 0; d < dequantized.size(); ++d) {
    const DType dtype = task.dequantize[d].to;
    for (const expr::Piece& p : dequantized[d].pieces) add_moves(p, static_cast<std::int32_t>(d), dequantized[d].box, dtype);
  }
  for (const expr::Piece& p : pieces) {
    if (p.leaf < 0) add_moves(p, -1, Box{}, job.expr->dtype);
  }
  LayOutBuffer(task);
  task.reads.shrink_to_fit();  // a plan may hold a million tasks
  task.outputs.shrink_to_fit();
  task.moves.shrink_to_fit();
  return task;
}

std::int64_t TaskBuilder::OutputBytes(const Job& job, const Box& tile) const {
  std::int64_t bytes = tile.count() * ElementSize(EntryAt(*target_, job.entry).dtype);
  if (job.is_pair()) {
    bytes += tile.count() * ElementSize(job.expr->dtype);
    if (!job.is_part()) bytes += ScalesBox(job, tile).count() * ElementSize(EntryAt(*target_, job.scales).dtype);
  }
  return bytes;
}

RunCounts TaskBuilder::Runs(const Job& job, const Box& tile) {
  RunCounts runs;
  const Entry& target = EntryAt(*target_, job.entry);
  for (const Place& p : Outputs(job.entry, tile)) runs.written += RunsIn(p.box, ChunkAt(target, p.chunk).box);
  for (const expr::Piece& piece : expr::PullBack(job.expr, tile)) {
    if (piece.leaf < 0) continue;
    const Box bounds = expr::LeafBounds(piece);
    const Leaves leaves = LeavesOf(piece);
    for (const std::int32_t c : leaves.index->Overlapping(bounds)) {
      const Box& chunk = ChunkAt(*leaves.entry, c).box;
      runs.read += RunsOfPiece(piece, *Intersect(bounds, chunk), chunk);
    }
  }
  return runs;
}

bool TaskBuilder::KeepsContiguous(const Job& job, const Box& tile, std::size_t axis, std::int64_t at) {
  for (const Place& p : Outputs(job.entry, tile)) {
    if (at <= p.box.offsets[axis] || at >= p.box.offsets[axis] + p.box.sizes[axis]) continue;
    for (std::size_t outer = 0; outer < axis; ++outer) {
      if (p.box.sizes[outer] > 1) return false;
    }
  }
  return true;
}

}  // namespace crossdock::plan
