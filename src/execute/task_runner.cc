// SPDX-License-Identifier: Apache-2.0
#include "execute/task_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/checked_math.h"
#include "execute/box_runs.h"
#include "execute/move.h"
#include "quantize/dequantize.h"

namespace crossdock::execute {
namespace {

/// A hole between two runs is read along where it is a 64th of them, and between shorter ones that a call each would be too dear for up to a page.
constexpr std::int64_t kSmallGap = 4096;
constexpr std::int64_t kWasteShare = 64;
constexpr std::int64_t kWorthACall = 512;
/// A copy inside the system of less than this saves nothing.
constexpr std::int64_t kWorthCopying = 64 << 10;
constexpr std::int64_t kLongRun = 64 << 10;      ///< for longer ones the system's own reading ahead does
constexpr std::int64_t kMostAhead = 256 << 20;

const Entry& TargetEntry(const SharedWork& shared, const plan::Output& output) {
  return shared.placement.catalog.entries[static_cast<std::size_t>(output.entry)];
}

/// The output whose buffer holds `offset` is streamed.
bool StreamedAt(const plan::Task& task, const std::vector<bool>& streamed, std::int64_t offset) {
  for (std::size_t i = 0; i < task.outputs.size(); ++i) {
    const std::int64_t at = offset - task.outputs[i].buffer_offset;
    if (at >= 0 && at < task.outputs[i].bytes) return streamed[i];
  }
  return false;
}

BoxRuns RunsOf(const SharedWork& shared, const plan::Output& output) {
  const Entry& entry = TargetEntry(shared, output);
  const Chunk& chunk = entry.chunks[static_cast<std::size_t>(output.chunk)];
  return {chunk.box.sizes, output.box, ElementSize(entry.dtype)};
}

const plan::Output& ValuesOf(const plan::Task& task) { return task.outputs[static_cast<std::size_t>(task.quantize->q_output)]; }
const plan::Output& ScalesOf(const plan::Task& task) { return task.outputs[static_cast<std::size_t>(task.quantize->s_output)]; }

/// What a kernel met in the rows of a task, in the places of the tensor.
NonFiniteFound InTensor(const SharedWork& shared, const plan::Task& task, const quantize::NonFinite& met) {
  if (met.count == 0) return {};
  const plan::Output& values = ValuesOf(task);
  const Entry& entry = TargetEntry(shared, values);
  const Box& chunk = entry.chunks[static_cast<std::size_t>(values.chunk)].box;
  const std::int64_t row = chunk.offsets[0] + values.box.offsets[0] + met.first / task.quantize->cols;
  const std::int64_t col = chunk.offsets[1] + values.box.offsets[1] + met.first % task.quantize->cols;
  return {met.count, row * entry.shape[1] + col};
}

void JoinFound(NonFiniteFound* all, const NonFiniteFound& part) {
  if (part.count == 0) return;
  all->first = all->count == 0 ? part.first : std::min(all->first, part.first);
  all->count += part.count;
}

}  // namespace

Result<TaskRunner> TaskRunner::Create(const SharedWork& shared) {
  CROSSDOCK_ASSIGN_OR_RETURN(Buffer slice, Buffer::Allocate(kSliceBytes));
  CROSSDOCK_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(kSliceBytes));
  return TaskRunner(shared, std::move(slice), std::move(scratch));
}

Status TaskRunner::CheckStopped() const {
  if (!shared_->stopped()) return OkStatus();
  return MakeError(ErrorCode::kCancelled, "interrupted");
}

/// A weight that becomes infinite in silence is a model that answers NaN much later.
Status TaskRunner::CheckOverflows(const plan::Task& task, const plan::Move& move, DType to, std::int64_t overflows) const {
  if (overflows == 0) return OkStatus();
  if (shared_->allow_nonfinite) {
    shared_->overflows.fetch_add(overflows, std::memory_order_relaxed);
    return OkStatus();
  }
  const std::int32_t output = task.quantize ? task.quantize->q_output : move.output;
  return MakeError(ErrorCode::kUnsupported, fmt::format("values are too large for {} and would become infinite", DTypeName(to)))
      .WithTensor(TargetEntry(*shared_, task.outputs[static_cast<std::size_t>(output)]).name)
      .WithExpected(fmt::format("values that {} can hold", DTypeName(to)))
      .WithFound(fmt::format("{} of them in one piece that it cannot", overflows))
      .WithHint("keep the dtype, or name a wider one; `--allow nonfinite` writes them as infinity");
}

Result<DoneTask> TaskRunner::Run(std::int64_t index) {
  const plan::Task& task = shared_->plan.tasks[static_cast<std::size_t>(index)];
  DoneTask done;
  done.task = index;
  refused_nonfinite_ = false;
  if (task.quantize && !task.quantize->bands.empty()) {
    CROSSDOCK_RETURN_IF_ERROR(RunBands(task, done));
    buffer_ = {};
    return done;
  }
  if (task.quantize && task.quantize->part) {
    CROSSDOCK_RETURN_IF_ERROR(RunPart(task, done));
    buffer_ = {};
    return done;
  }
  CROSSDOCK_ASSIGN_OR_RETURN(const auto places, Places(task));
  std::vector<std::optional<std::vector<Segment>>> segments(task.outputs.size());
  std::vector<bool> streamed(task.outputs.size(), false);
  bool all_streamed = true;
  for (std::size_t i = 0; i < task.outputs.size(); ++i) {
    if (!task.quantize && !shared_->places.IsEncoded(task.outputs[i])) segments[i] = SegmentsOf(task, static_cast<std::int32_t>(i), places);
    streamed[i] = segments[i].has_value();
    all_streamed = all_streamed && streamed[i];
  }
  if (!all_streamed) {
    CROSSDOCK_ASSIGN_OR_RETURN(buffer_, shared_->buffers.Take(task.buffer_bytes, shared_->stopped));
    CROSSDOCK_RETURN_IF_ERROR(Load(task, places, streamed));
    if (task.quantize) {
      CROSSDOCK_ASSIGN_OR_RETURN(const NonFiniteFound found, Quantize(task));
      CROSSDOCK_RETURN_IF_ERROR(CheckFinite(task, found));
    }
  }
  std::vector<std::string> encoded;
  for (std::size_t i = 0; i < task.outputs.size(); ++i) {
    if (shared_->places.IsEncoded(task.outputs[i])) {
      CROSSDOCK_ASSIGN_OR_RETURN(std::string bytes, EncodeOutput(task.outputs[i], done));
      encoded.push_back(std::move(bytes));
      continue;
    }
    CROSSDOCK_RETURN_IF_ERROR(streamed[i] ? Stream(task.outputs[i], *segments[i], done)
                                          : WriteBuffer(task.outputs[i], done));
  }
  buffer_ = {};  // before the wait: those that are waited for may need the memory
  if (shared_->places.any()) CROSSDOCK_RETURN_IF_ERROR(WriteEncoded(task, encoded, done));
  return done;
}

Result<std::string> TaskRunner::EncodeOutput(const plan::Output& output, DoneTask& done) {
  CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
  const std::span<const std::byte> elements(buffer_.data() + output.buffer_offset, static_cast<std::size_t>(output.bytes));
  if (shared_->sums.kinds().any()) {
    PieceSum sum;
    Extend(sum, shared_->sums.kinds(), elements);
    done.sums.push_back(sum);
  }
  return shared_->writer.Encode(shared_->placement.catalog, output.entry, output.chunk, elements);
}

Status TaskRunner::WriteEncoded(const plan::Task& task, std::span<const std::string> encoded, DoneTask& done) {
  for (const std::string& bytes : encoded) done.encoded.push_back(static_cast<std::int64_t>(bytes.size()));
  CROSSDOCK_ASSIGN_OR_RETURN(const std::vector<ByteRange> places, shared_->places.Place(done.task, done.encoded, shared_->stopped));
  std::size_t next = 0;
  for (const plan::Output& output : task.outputs) {
    if (!shared_->places.IsEncoded(output)) continue;
    const Entry& entry = TargetEntry(*shared_, output);
    const std::int32_t file = entry.chunks[static_cast<std::size_t>(output.chunk)].file;
    const std::span<const std::byte> bytes = std::as_bytes(std::span(encoded[next]));
    CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
    CROSSDOCK_RETURN_IF_ERROR(shared_->targets.WriteAt(file, places[next].offset, bytes));
    shared_->progress.Add(output.bytes, entry.name);
    ++next;
  }
  return OkStatus();
}

Result<std::vector<ReadPlace>> TaskRunner::Places(const plan::Task& task) const {
  CROSSDOCK_ASSIGN_OR_RETURN(std::vector<ReadPlace> places, PlaceReads(task, shared_->source));
  for (std::size_t i = 0; i < places.size(); ++i) places[i].file = shared_->sources.PlaceOf(task.reads[i]);
  return places;
}

Status TaskRunner::LoadScratch(const plan::Task& task) {
  CROSSDOCK_ASSIGN_OR_RETURN(const auto places, Places(task));
  return Load(task, places, std::vector<bool>(task.outputs.size(), false));
}

Result<NonFiniteFound> TaskRunner::Quantize(const plan::Task& task) {
  const plan::Quantize& step = *task.quantize;
  CROSSDOCK_ASSIGN_OR_RETURN(const quantize::NonFinite met,
                             shared_->fp8.QuantizeBlocks(step, buffer_.data() + step.scratch_offset, buffer_.data() + ValuesOf(task).buffer_offset,
                                                         reinterpret_cast<float*>(buffer_.data() + ScalesOf(task).buffer_offset)));
  return InTensor(*shared_, task, met);
}

Status TaskRunner::CheckFinite(const plan::Task& task, const NonFiniteFound& found) {
  if (found.count == 0) return OkStatus();
  if (shared_->allow_nonfinite) {
    shared_->nonfinite.fetch_add(found.count, std::memory_order_relaxed);
    return OkStatus();
  }
  refused_nonfinite_ = true;
  return NonFiniteError(*shared_, task, found);
}

Result<float> TaskRunner::AmaxOfBands(const plan::Task& task, NonFiniteFound* found) {
  float amax = 0.0F;
  for (const plan::Task& band : task.quantize->bands) {
    CROSSDOCK_RETURN_IF_ERROR(LoadScratch(band));
    const plan::Quantize& step = *band.quantize;
    quantize::NonFinite met{};
    CROSSDOCK_ASSIGN_OR_RETURN(const float one, shared_->fp8.AmaxOf(step, buffer_.data() + step.scratch_offset, &met));
    amax = quantize::Larger(amax, one);
    JoinFound(found, InTensor(*shared_, band, met));
  }
  return amax;
}

/// One scale for a tensor that does not fit: its largest value is found first, by reading it all.
Status TaskRunner::RunBands(const plan::Task& task, DoneTask& done) {
  CROSSDOCK_ASSIGN_OR_RETURN(buffer_, shared_->buffers.Take(task.buffer_bytes, shared_->stopped));
  NonFiniteFound found;
  read_again_ = true;
  const Result<float> amax = AmaxOfBands(task, &found);
  read_again_ = false;
  if (!amax) return amax.error();
  CROSSDOCK_RETURN_IF_ERROR(CheckFinite(task, found));
  const float scale = Fp8Kernels::ScaleOf(*task.quantize, *amax);
  PieceSum values;
  for (const plan::Task& band : task.quantize->bands) {
    CROSSDOCK_RETURN_IF_ERROR(LoadScratch(band));
    const plan::Quantize& step = *band.quantize;
    const plan::Output& output = ValuesOf(band);
    std::byte* q = buffer_.data() + output.buffer_offset;
    CROSSDOCK_RETURN_IF_ERROR(shared_->fp8.QuantizeWithScale(step, buffer_.data() + step.scratch_offset, scale, q));
    const std::int64_t begin = RunsOf(*shared_, output).offset();  // whole rows: one run
    for (std::int64_t at = 0; at < output.bytes; at += kSliceBytes) {
      CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
      const auto n = static_cast<std::size_t>(std::min(kSliceBytes, output.bytes - at));
      CROSSDOCK_RETURN_IF_ERROR(WriteSlice(ValuesOf(task), begin + at, {q + at, n}, values));
    }
  }
  PieceSum scales;
  const std::span<const float> one(&scale, 1);
  CROSSDOCK_RETURN_IF_ERROR(WriteSlice(ScalesOf(task), 0, std::as_bytes(one), scales));
  if (shared_->sums.kinds().any()) done.sums = {values, scales};
  return OkStatus();
}

Status TaskRunner::Measure(std::int64_t index, std::span<float> amaxes) {
  const plan::Task& task = shared_->plan.tasks[static_cast<std::size_t>(index)];
  const plan::Quantize& step = *task.quantize;
  refused_nonfinite_ = false;
  if (step.rows == 0) return OkStatus();  // scales, which follow from all parts
  CROSSDOCK_ASSIGN_OR_RETURN(buffer_, shared_->buffers.Take(task.buffer_bytes, shared_->stopped));
  CROSSDOCK_RETURN_IF_ERROR(LoadScratch(task));
  const quantize::NonFinite met = Fp8Kernels::AmaxOfPart(step, buffer_.data() + step.scratch_offset, amaxes);
  buffer_ = {};
  return CheckFinite(task, InTensor(*shared_, task, met));
}

Status TaskRunner::RunPart(const plan::Task& task, DoneTask& done) {
  const plan::Quantize& step = *task.quantize;
  CROSSDOCK_ASSIGN_OR_RETURN(buffer_, shared_->buffers.Take(task.buffer_bytes, shared_->stopped));
  if (step.rows > 0) {
    CROSSDOCK_RETURN_IF_ERROR(LoadScratch(task));
    const plan::Output& values = ValuesOf(task);
    Fp8Kernels::QuantizePart(step, buffer_.data() + step.scratch_offset, shared_->amaxes, buffer_.data() + values.buffer_offset);
    return WriteBuffer(values, done);
  }
  const plan::Output& scales = ScalesOf(task);
  const Box& chunk = TargetEntry(*shared_, scales).chunks[static_cast<std::size_t>(scales.chunk)].box;
  const std::int64_t cols = chunk.rank() == 2 ? chunk.sizes[1] : 1;
  auto* to = reinterpret_cast<float*>(buffer_.data() + scales.buffer_offset);
  for (std::int64_t i = 0; i < chunk.count(); ++i) {
    const std::int64_t row = chunk.offsets[0] + i / cols;
    const std::int64_t col = chunk.rank() == 2 ? chunk.offsets[1] + i % cols : 0;
    to[i] = Fp8Kernels::ScaleOf(step, shared_->amaxes[static_cast<std::size_t>(step.part->first + row * step.part->across + col)]);
  }
  return WriteBuffer(scales, done);
}

Result<NonFiniteFound> TaskRunner::CountNonFinite(std::int64_t index) {
  const plan::Task& task = shared_->plan.tasks[static_cast<std::size_t>(index)];
  CROSSDOCK_CHECK(task.quantize != nullptr);
  buffer_ = {};
  CROSSDOCK_ASSIGN_OR_RETURN(buffer_, shared_->buffers.Take(task.buffer_bytes, shared_->stopped));
  NonFiniteFound found;
  if (!task.quantize->bands.empty()) {
    CROSSDOCK_RETURN_IF_ERROR(AmaxOfBands(task, &found));
  } else if (task.quantize->part) {
    CROSSDOCK_RETURN_IF_ERROR(LoadScratch(task));
    const plan::Quantize& step = *task.quantize;
    quantize::NonFinite met;
    CROSSDOCK_ASSIGN_OR_RETURN([[maybe_unused]] const float amax, shared_->fp8.AmaxOf(step, buffer_.data() + step.scratch_offset, &met));
    found = InTensor(*shared_, task, met);
  } else {
    CROSSDOCK_RETURN_IF_ERROR(LoadScratch(task));
    CROSSDOCK_ASSIGN_OR_RETURN(found, Quantize(task));
  }
  buffer_ = {};
  return found;
}

Status TaskRunner::Load(const plan::Task& task, std::span<const ReadPlace> places, const std::vector<bool>& streamed) {
  const auto wanted = [&](const plan::Move& move) {
    return task.quantize || !streamed[static_cast<std::size_t>(move.output)];
  };
  std::vector<bool> needed(task.reads.size(), false);
  for (const plan::Move& move : task.moves) {
    if (move.read >= 0 && !move.dequantized && wanted(move)) needed[static_cast<std::size_t>(move.read)] = true;
  }
  for (const plan::Dequantize& d : task.dequantize) {  // none of their outputs is streamed
    needed[static_cast<std::size_t>(d.values)] = true;
    needed[static_cast<std::size_t>(d.scales)] = true;
  }
  // A read in place belongs to a streamed output, or must be here.
  for (std::size_t i = 0; i < task.reads.size(); ++i) {
    if (places[i].in_place) needed[i] = task.quantize || !StreamedAt(task, streamed, task.reads[i].buffer_offset);
  }
  for (std::size_t i = 0; i < task.reads.size(); ++i) {
    if (needed[i]) CROSSDOCK_RETURN_IF_ERROR(ReadBox(task.reads[i], places[i]));
  }
  CROSSDOCK_RETURN_IF_ERROR(RunDequantize(task));
  for (const plan::Move& move : task.moves) {
    if (!wanted(move)) continue;
    CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
    const auto at = static_cast<std::size_t>(move.read);
    const std::byte* from = move.read < 0 ? nullptr
                                          : buffer_.data() + (move.dequantized ? task.dequantize[at].buffer_offset
                                                                               : task.reads[at].buffer_offset);
    std::byte* to =
        buffer_.data() + (task.quantize ? task.quantize->scratch_offset
                                        : task.outputs[static_cast<std::size_t>(move.output)].buffer_offset);
    CROSSDOCK_RETURN_IF_ERROR(CheckOverflows(task, move, move.to, RunMove(move, from, to)));
  }
  return OkStatus();
}

Status TaskRunner::RunDequantize(const plan::Task& task) {
  for (std::size_t i = 0; i < task.dequantize.size(); ++i) {
    CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
    const plan::Dequantize& d = task.dequantize[i];
    const auto read = [&](std::int32_t r) { return buffer_.data() + task.reads[static_cast<std::size_t>(r)].buffer_offset; };
    const quantize::Stored stored{read(d.values), d.values_type, read(d.scales), d.scales_type};
    const quantize::Tile tile{d.tile.batches,    d.tile.rows,       d.tile.cols,       d.tile.first_row,  d.tile.first_col,
                              d.tile.block_rows, d.tile.block_cols, d.tile.scale_cols, d.tile.scale_batch};
    const std::int64_t overflows = quantize::Dequantize(stored, tile, buffer_.data() + d.buffer_offset, d.to);
    if (overflows == 0) continue;
    // The first move that takes from it tells which output is meant.
    const auto user = std::find_if(task.moves.begin(), task.moves.end(), [&](const plan::Move& m) {
      return m.dequantized && m.read == static_cast<std::int32_t>(i);
    });
    CROSSDOCK_CHECK(user != task.moves.end());
    CROSSDOCK_RETURN_IF_ERROR(CheckOverflows(task, *user, d.to, overflows));
  }
  return OkStatus();
}

/// Short runs far apart are a layer of a stack or the columns of a matrix, and the tasks that follow read what lies between: the disk had
/// better read it at once. Not where another process reads it, nor more than a small machine's cache holds until then.
Status TaskRunner::ReadAhead(const ReadPlace& place) {
  const BoxRuns& runs = place.runs;
  if (shared_->exact_reads || runs.left() < 2 || runs.length() >= kLongRun) return OkStatus();
  const std::int64_t all = runs.reach();
  if (all <= kSliceBytes || all > kMostAhead) return OkStatus();
  return shared_->sources.WillNeed(place.file, place.offset + runs.offset(), all);
}

/// Long runs go straight to their place; short ones with small holes between them are read in one call and picked out
/// of the scratch.
Status TaskRunner::ReadBox(const plan::Read& read, const ReadPlace& place) {
  BoxRuns runs = place.runs;
  std::byte* to = buffer_.data() + read.buffer_offset;
  CROSSDOCK_RETURN_IF_ERROR(ReadAhead(place));
  // All runs of a box are alike, and so are the holes between most of them.
  const bool exact = shared_->exact_reads || runs.length() >= kWorthACall;
  const std::int64_t small_gap = exact ? std::min(kSmallGap, runs.length() / kWasteShare + 1) : kSmallGap;
  while (!runs.done()) {
    CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
    BoxRuns ahead = runs;
    const std::int64_t start = runs.offset();
    std::int64_t end = start + runs.length();
    std::int64_t together = 1;
    for (ahead.Next(); !ahead.done(); ahead.Next(), ++together) {
      if (ahead.offset() - end >= small_gap || ahead.offset() + ahead.length() - start > kSliceBytes) break;
      end = ahead.offset() + ahead.length();
    }
    if (together == 1) {
      for (std::int64_t at = 0; at < runs.length(); at += kSliceBytes) {
        const std::int64_t n = std::min(kSliceBytes, runs.length() - at);
        CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
        CROSSDOCK_RETURN_IF_ERROR(
            shared_->sources.ReadAt(place.file, place.offset + start + at, {to + at, static_cast<std::size_t>(n)}));
      }
      if (!read_again_) shared_->sources.Drop(place.file, place.offset + start, runs.length());
      to += runs.length();
      runs.Next();
      continue;
    }
    CROSSDOCK_RETURN_IF_ERROR(shared_->sources.ReadAt(place.file, place.offset + start,
                                                      {scratch_.data(), static_cast<std::size_t>(end - start)}));
    for (; together > 0; --together, runs.Next()) {
      std::memcpy(to, scratch_.data() + (runs.offset() - start), static_cast<std::size_t>(runs.length()));
      to += runs.length();
    }
  }
  return OkStatus();
}

/// Fills `slice` with the next bytes of the segments; `at` and `used` say where those begin.
Status TaskRunner::FillSlice(std::span<const Segment> segments, std::size_t& at, std::int64_t& used,
                             std::span<std::byte> slice) {
  while (!slice.empty()) {
    const Segment& segment = segments[at];
    const auto n = std::min(static_cast<std::size_t>(segment.length - used), slice.size());
    if (segment.file < 0) {
      std::memset(slice.data(), 0, n);
    } else {
      CROSSDOCK_RETURN_IF_ERROR(shared_->sources.ReadAt(segment.file, segment.offset + used, slice.first(n)));
    }
    slice = slice.subspan(n);
    used += static_cast<std::int64_t>(n);
    if (used < segment.length) return OkStatus();
    if (segment.file >= 0) shared_->sources.Drop(segment.file, segment.offset, segment.length);
    ++at;
    used = 0;
  }
  return OkStatus();
}

/// Copies the next bytes of the segments to `offset` of the output's chunk, `most` of them at most; `at` and `used` go on. Returns
/// how many: none where they are few, zeros, or cannot be copied inside the system.
Result<std::int64_t> TaskRunner::Copy(const plan::Output& output, std::int64_t offset, std::int64_t most, std::span<const Segment> segments, std::size_t& at, std::int64_t& used) {
  const Segment& segment = segments[at];
  const std::int64_t n = std::min(most, segment.length - used);
  if (segment.file < 0 || n < kWorthCopying) return 0;
  const Entry& entry = TargetEntry(*shared_, output);
  const Chunk& chunk = entry.chunks[static_cast<std::size_t>(output.chunk)];
  CROSSDOCK_ASSIGN_OR_RETURN(copies_, shared_->sources.CopyTo(shared_->targets, chunk.file, chunk.bytes.offset + offset, segment.file, segment.offset + used, n));
  if (!copies_) return 0;
  shared_->progress.Add(n, entry.name);
  used += n;
  if (used == segment.length) {
    shared_->sources.Drop(segment.file, segment.offset, segment.length);
    ++at;
    used = 0;
  }
  return n;
}

Status TaskRunner::Stream(const plan::Output& output, std::span<const Segment> segments, DoneTask& done) {
  const Entry& entry = TargetEntry(*shared_, output);
  const std::int64_t base = entry.chunks[static_cast<std::size_t>(output.chunk)].bytes.offset;
  std::size_t at = 0;
  std::int64_t used = 0;
  for (BoxRuns runs = RunsOf(*shared_, output); !runs.done(); runs.Next()) {
    PieceSum sum;
    const std::int64_t end = runs.offset() + runs.length();
    for (std::int64_t offset = runs.offset(); offset < end;) {
      CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
      if (copies_ && !shared_->sums.kinds().any()) {
        const std::int64_t most = std::min(RoundUp(base + offset + 1, kCopyBytes) - base, end) - offset;
        CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t copied, Copy(output, offset, most, segments, at, used));
        offset += copied;
        if (copied > 0) continue;
      }
      // Slices end at multiples of their size in the file: no page is written by two calls but at the very ends. In memory they lie within
      // pages as in the file, so that whole pages can go past the cache (io/direct_file.h).
      const std::int64_t boundary = RoundUp(base + offset + 1, kSliceBytes) - base;
      const std::span<std::byte> slice(slice_.data() + (base + offset) % kSliceBytes, static_cast<std::size_t>(std::min(boundary, end) - offset));
      CROSSDOCK_RETURN_IF_ERROR(FillSlice(segments, at, used, slice));
      CROSSDOCK_RETURN_IF_ERROR(WriteSlice(output, offset, slice, sum));
      offset += static_cast<std::int64_t>(slice.size());
    }
    if (shared_->sums.kinds().any()) done.sums.push_back(sum);
  }
  return OkStatus();
}

Status TaskRunner::WriteBuffer(const plan::Output& output, DoneTask& done) {
  const std::byte* from = buffer_.data() + output.buffer_offset;
  for (BoxRuns runs = RunsOf(*shared_, output); !runs.done(); runs.Next()) {
    PieceSum sum;
    for (std::int64_t at = 0; at < runs.length(); at += kSliceBytes) {
      CROSSDOCK_RETURN_IF_ERROR(CheckStopped());
      const auto n = static_cast<std::size_t>(std::min(kSliceBytes, runs.length() - at));
      CROSSDOCK_RETURN_IF_ERROR(WriteSlice(output, runs.offset() + at, {from, n}, sum));
      from += n;
    }
    if (shared_->sums.kinds().any()) done.sums.push_back(sum);
  }
  return OkStatus();
}

Status TaskRunner::WriteSlice(const plan::Output& output, std::int64_t chunk_offset, std::span<const std::byte> bytes,
                              PieceSum& sum) {
  const Entry& entry = TargetEntry(*shared_, output);
  const Chunk& chunk = entry.chunks[static_cast<std::size_t>(output.chunk)];
  Extend(sum, shared_->sums.kinds(), bytes);
  CROSSDOCK_RETURN_IF_ERROR(shared_->targets.WriteAt(chunk.file, chunk.bytes.offset + chunk_offset, bytes));
  shared_->progress.Add(static_cast<std::int64_t>(bytes.size()), entry.name);
  return OkStatus();
}

Error NonFiniteError(const SharedWork& shared, const plan::Task& task, const NonFiniteFound& found) {
  const Entry& entry = TargetEntry(shared, ValuesOf(task));
  return MakeError(ErrorCode::kUnsupported, "values that are NaN or infinite cannot be quantized")
      .WithTensor(entry.name)
      .WithExpected("finite values")
      .WithFound(fmt::format("{} that {} not, the first at [{}, {}]", found.count, found.count == 1 ? "is" : "are",
                             found.first / entry.shape[1], found.first % entry.shape[1]))
      .WithHint("mend the source, or keep the tensor as it is with `--fp8-skip`; `--allow nonfinite` writes NaN for them and what shares their scale");
}

std::size_t CountPieces(const SharedWork& shared, std::int64_t task) {
  if (!shared.sums.kinds().any()) return 0;
  std::size_t count = 0;
  for (const plan::Output& output : shared.plan.tasks[static_cast<std::size_t>(task)].outputs) {
    count += static_cast<std::size_t>(RunsOf(shared, output).left());
  }
  return count;
}

Status JoinSums(const SharedWork& shared, const DoneTask& done) {
  if (!shared.sums.kinds().any()) return OkStatus();
  const plan::Task& task = shared.plan.tasks[static_cast<std::size_t>(done.task)];
  std::size_t next = 0;
  for (const plan::Output& output : task.outputs) {
    for (BoxRuns runs = RunsOf(shared, output); !runs.done(); runs.Next()) {
      PieceSum sum = done.sums[next++];
      if (shared.sums.kinds().digest) sum.digest.length = runs.length();
      const auto crc = shared.sums.Add(output.entry, output.chunk, runs.offset(), runs.length(), sum);
      if (!crc || !shared.placement.wants_crc32) continue;
      CROSSDOCK_ASSIGN_OR_RETURN(const auto frames, shared.writer.Seal(shared.placement.catalog, output.entry, output.chunk, *crc));
      CROSSDOCK_RETURN_IF_ERROR(shared.targets.WriteFrames(frames));
    }
  }
  return OkStatus();
}

}  // namespace crossdock::execute
