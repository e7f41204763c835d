// SPDX-License-Identifier: Apache-2.0
#include "verify/evaluate.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/cast.h"

namespace crossdock::verify {
namespace {

/// Reads `box` of a row-major array of `shape` whose first byte lies at `base`, row by row.
Status ReadBox(const io::ReadFile& file, std::int64_t base, const Shape& shape, const Box& box, std::int64_t element,
               std::vector<std::byte>& out) {
  const std::int64_t total = box.count();
  out.resize(static_cast<std::size_t>(total * element));
  if (total == 0) return OkStatus();
  const Dims strides = RowMajorStrides(shape);
  // The last axes that are taken whole, and the one before them, form one contiguous run.
  std::size_t first_run_axis = box.rank();
  std::int64_t run = 1;
  while (first_run_axis > 0) {
    --first_run_axis;
    run *= box.sizes[first_run_axis];
    if (box.sizes[first_run_axis] != shape[first_run_axis]) break;
  }
  Dims at = box.offsets;
  for (std::int64_t done = 0; done < total; done += run) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i < at.size(); ++i) from += at[i] * strides[i];
    const std::span<std::byte> target(out.data() + done * element, static_cast<std::size_t>(run * element));
    CROSSDOCK_RETURN_IF_ERROR(file.ReadAt(base + from * element, target));
    for (std::size_t i = first_run_axis; i-- > 0;) {
      if (++at[i] < box.offsets[i] + box.sizes[i]) break;
      at[i] = box.offsets[i];
    }
  }
  return OkStatus();
}

double Apply(const expr::ElementOp& op, double v) {
  switch (op.op) {
    case expr::Op::kScale: return v * op.factor;
    case expr::Op::kOffset: return v + op.factor;
    default: return v;  // a cast is the rounding between operations, done by the caller
  }
}

/// One element through the steps of a piece. Every intermediate is rounded to its declared type, as it is in conversion.
void StoreConverted(const std::byte* from, DType from_type, std::span<const expr::ElementOp> ops, std::byte* to,
                    DType to_type) {
  std::byte held[8];
  std::memcpy(held, from, static_cast<std::size_t>(ElementSize(from_type)));
  DType type = from_type;
  for (const expr::ElementOp& op : ops) {
    const double v = Apply(op, kernels::LoadAsDouble(held, type));
    kernels::StoreFromDouble(v, held, op.to);
    type = op.to;
  }
  if (type != to_type) kernels::StoreFromDouble(kernels::LoadAsDouble(held, type), held, to_type);
  std::memcpy(to, held, static_cast<std::size_t>(ElementSize(to_type)));
}

/// Calls visit(from element, to element, run length) for every innermost run of a strided copy.
template <typename Visit>
void ForEachRun(const expr::StridedCopy& copy, Visit visit) {
  std::vector<std::int64_t> at(copy.dims.size(), 0);
  const bool has_run = !copy.dims.empty() && copy.dims.back().from_stride == 1 && copy.dims.back().to_stride == 1;
  const std::size_t outer = has_run ? copy.dims.size() - 1 : copy.dims.size();
  const std::int64_t run = has_run ? copy.dims.back().count : 1;
  for (const auto& d : copy.dims) {
    if (d.count == 0) return;
  }
  std::int64_t from = copy.from;
  std::int64_t to = copy.to;
  for (;;) {
    visit(from, to, run);
    std::size_t i = outer;
    while (i > 0) {
      --i;
      from += copy.dims[i].from_stride;
      to += copy.dims[i].to_stride;
      if (++at[i] < copy.dims[i].count) break;
      from -= copy.dims[i].from_stride * copy.dims[i].count;
      to -= copy.dims[i].to_stride * copy.dims[i].count;
      at[i] = 0;
      if (i == 0) return;
    }
    if (outer == 0) return;
  }
}

}  // namespace

Result<io::ReadFile*> Evaluator::File(std::int32_t index) {
  auto& slot = files_[index];
  if (!slot) {
    const Catalog& catalog = side_.reader->catalog();
    const std::string path = io::JoinPath(catalog.root, catalog.files[static_cast<std::size_t>(index)].path);
    CROSSDOCK_ASSIGN_OR_RETURN(slot, side_.storage->OpenRead(path));
  }
  return slot.get();
}

Status Evaluator::Place(const expr::Piece& piece, const dialects::HubTensor& tensor, const Box& box,
                        std::vector<std::byte>& out) {
  const Catalog& catalog = side_.reader->catalog();
  const Entry& entry = catalog.entries[static_cast<std::size_t>(piece.leaf)];
  const std::int64_t element = ElementSize(entry.dtype);
  const std::int64_t out_element = ElementSize(tensor.dtype);
  for (std::size_t c = 0; c < entry.chunks.size(); ++c) {
    const Chunk& chunk = entry.chunks[c];
    if (!chunk.box.offsets.empty() && !Intersect(chunk.box, expr::LeafBounds(piece))) continue;
    for (const expr::Piece& part : expr::ClipLeaf(piece, chunk.box)) {
      const Box bounds = expr::LeafBounds(part);
      Box in_chunk = bounds;
      for (std::size_t i = 0; i < in_chunk.rank(); ++i) in_chunk.offsets[i] -= chunk.box.offsets[i];
      CROSSDOCK_ASSIGN_OR_RETURN(io::ReadFile * file, File(chunk.file));
      CROSSDOCK_ASSIGN_OR_RETURN(const ByteRange raw, side_.reader->Locate(piece.leaf, static_cast<std::int32_t>(c)));
      CROSSDOCK_RETURN_IF_ERROR(ReadBox(*file, raw.offset, chunk.box.sizes, in_chunk, element, scratch_));
      const expr::StridedCopy copy = expr::ToCopy(part, bounds, box);
      const bool plain = part.ops.empty() && entry.dtype == tensor.dtype;
      ForEachRun(copy, [&](std::int64_t from, std::int64_t to, std::int64_t run) {
        const std::byte* source = scratch_.data() + from * element;
        std::byte* target = out.data() + to * out_element;
        if (plain) {
          std::memcpy(target, source, static_cast<std::size_t>(run * element));
          return;
        }
        for (std::int64_t k = 0; k < run; ++k) {
          StoreConverted(source + k * element, entry.dtype, part.ops, target + k * out_element, tensor.dtype);
        }
      });
    }
  }
  return OkStatus();
}

Status Evaluator::Evaluate(const dialects::HubTensor& tensor, const Box& box, std::vector<std::byte>& out) {
  // Zeros first: padding pieces have no source.
  out.assign(static_cast<std::size_t>(box.count() * ElementSize(tensor.dtype)), std::byte{0});
  if (box.empty()) return OkStatus();
  for (const expr::Piece& piece : expr::PullBack(tensor.expr, box)) {
    if (piece.leaf >= 0) CROSSDOCK_RETURN_IF_ERROR(Place(piece, tensor, box, out));
  }
  return OkStatus();
}

std::vector<Box> RowMajorTiles(const Shape& shape, std::int64_t max_elements) {
  if (shape.empty()) return {Box{}};
  std::vector<Box> tiles;
  // The axis to cut: the first one whose trailing block fits; the axes before it are walked one by one.
  std::size_t axis = 0;
  std::int64_t inner = CheckedCount(shape);
  if (inner == 0) return tiles;
  inner /= shape[0];
  while (axis + 1 < shape.size() && inner > max_elements) {
    ++axis;
    inner /= shape[axis];
  }
  const std::int64_t step = std::max<std::int64_t>(1, max_elements / std::max<std::int64_t>(inner, 1));
  Dims at = Dims::Filled(shape.size(), 0);
  for (;;) {
    Box box{at, shape};
    for (std::size_t i = 0; i < axis; ++i) box.sizes[i] = 1;
    box.sizes[axis] = std::min(step, shape[axis] - at[axis]);
    tiles.push_back(box);
    at[axis] += step;
    std::size_t i = axis;
    while (at[i] >= shape[i]) {
      at[i] = 0;
      if (i == 0) return tiles;
      ++at[--i];
    }
  }
}

Result<std::string> EvaluateBox(const Side& side, const dialects::HubTensor& tensor, const Box& box) {
  Evaluator evaluator(side);
  std::vector<std::byte> out;
  CROSSDOCK_RETURN_IF_ERROR(evaluator.Evaluate(tensor, box, out));
  return std::string(reinterpret_cast<const char*>(out.data()), out.size());
}

}  // namespace crossdock::verify
