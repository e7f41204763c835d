// SPDX-License-Identifier: Apache-2.0
#include "execute/segments.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "execute/box_runs.h"

namespace crossdock::execute {
namespace {

/// Adds the runs of one move; false when they are too short or values change.
bool AddRuns(const plan::Move& move, const ReadPlace* place, std::int64_t element, std::vector<Segment>& out) {
  if (!move.ops.empty() || move.from != move.to) return false;
  if (place != nullptr && place->runs.left() != 1) return false;
  const auto& dims = move.copy.dims;
  std::size_t outer = dims.size();
  std::int64_t run = element;
  if (!dims.empty() && dims.back().to_stride == 1 && (place == nullptr || dims.back().from_stride == 1)) {
    run = dims.back().count * element;
    --outer;
  }
  if (outer != 0 && run < kShortestSegment) return false;
  std::vector<std::int64_t> at(outer, 0);
  Segment segment;
  segment.length = run;
  if (place != nullptr) segment.file = place->file;
  std::int64_t from = move.copy.from;
  std::int64_t to = move.copy.to;
  while (true) {
    segment.at = to * element;
    if (place != nullptr) segment.offset = place->offset + place->runs.offset() + from * element;
    out.push_back(segment);
    std::size_t i = outer;
    while (i > 0) {
      --i;
      from += dims[i].from_stride;
      to += dims[i].to_stride;
      if (++at[i] < dims[i].count) break;
      from -= dims[i].from_stride * dims[i].count;
      to -= dims[i].to_stride * dims[i].count;
      at[i] = 0;
      if (i == 0) return true;
    }
    if (outer == 0) return true;
  }
}

/// The runs of a read in place, `at` bytes into the output; false when they are too short.
bool AddReadInPlace(const ReadPlace& place, std::int64_t at, std::vector<Segment>& out) {
  if (place.runs.left() > 1 && place.runs.length() < kShortestSegment) return false;
  for (BoxRuns runs = place.runs; !runs.done(); runs.Next(), at += runs.length()) {
    out.push_back({at, place.file, place.offset + runs.offset(), runs.length()});
  }
  return true;
}

}  // namespace

Result<std::vector<ReadPlace>> PlaceReads(const plan::Task& task, const formats::CheckpointReader& source) {
  std::vector<ReadPlace> places;
  places.reserve(task.reads.size());
  for (const plan::Read& read : task.reads) {
    const Entry& entry = source.catalog().entries[static_cast<std::size_t>(read.entry)];
    const Chunk& chunk = entry.chunks[static_cast<std::size_t>(read.chunk)];
    CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange range, source.Locate(read.entry, read.chunk));
    CROSSDOCK_ASSIGN_OR_RETURN(const std::int64_t bytes, ByteSize(entry.dtype, chunk.box.sizes));
    if (range.length != bytes) {
      return MakeError(ErrorCode::kCorrupt, "a stored tensor has the wrong size")
          .WithTensor(entry.name)
          .WithExpected(fmt::format("{} bytes", bytes))
          .WithFound(fmt::format("{} bytes", range.length));
    }
    places.push_back({chunk.file, range.offset, BoxRuns(chunk.box.sizes, read.box, ElementSize(entry.dtype)), true});
  }
  for (const plan::Move& move : task.moves) {
    if (move.read >= 0 && !move.dequantized) places[static_cast<std::size_t>(move.read)].in_place = false;
  }
  for (const plan::Dequantize& d : task.dequantize) {
    places[static_cast<std::size_t>(d.values)].in_place = false;
    places[static_cast<std::size_t>(d.scales)].in_place = false;
  }
  return places;
}

std::optional<std::vector<Segment>> SegmentsOf(const plan::Task& task, std::int32_t index,
                                               std::span<const ReadPlace> places) {
  const plan::Output& output = task.outputs[static_cast<std::size_t>(index)];
  std::vector<Segment> segments;
  for (const plan::Move& move : task.moves) {
    if (move.output != index) continue;
    if (move.dequantized) return std::nullopt;
    const ReadPlace* place = move.read < 0 ? nullptr : &places[static_cast<std::size_t>(move.read)];
    if (!AddRuns(move, place, ElementSize(move.to), segments)) return std::nullopt;
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t at = task.reads[i].buffer_offset - output.buffer_offset;
    if (!places[i].in_place || at < 0 || at >= output.bytes) continue;
    if (!AddReadInPlace(places[i], at, segments)) return std::nullopt;
  }
  std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) { return a.at < b.at; });
  std::int64_t end = 0;
  for (const Segment& segment : segments) {
    CROSSDOCK_CHECK(segment.at == end);  // the planner's moves cover an output exactly once
    end += segment.length;
  }
  CROSSDOCK_CHECK(end == output.bytes);
  return segments;
}

}  // namespace crossdock::execute
