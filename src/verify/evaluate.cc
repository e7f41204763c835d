// SPDX-License-Identifier: Apache-2.0
#include "verify/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "expr/dequantize.h"
#include "kernels/cast.h"

namespace crossdock::verify {
namespace {

/// Reads `box` of a row-major array of `shape`, row by row; `read` fills bytes from an offset of it.
template <typename Read>
Status ReadBox(const Read& read, const Shape& shape, const Box& box, std::int64_t element, std::vector<std::byte>& out) {
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
    CROSSDOCK_RETURN_IF_ERROR(read(from * element, target));
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

/// The elements of a piece from a row-major `bounds` of its leaf to the row-major `box` of the tensor.
void PlaceElements(const expr::Piece& piece, const Box& bounds, std::span<const std::byte> from, DType from_type, DType to_type,
                   const Box& box, std::vector<std::byte>& out) {
  const std::int64_t element = ElementSize(from_type);
  const std::int64_t out_element = ElementSize(to_type);
  const bool plain = piece.ops.empty() && from_type == to_type;
  ForEachRun(expr::ToCopy(piece, bounds, box), [&](std::int64_t at, std::int64_t to, std::int64_t run) {
    const std::byte* source = from.data() + at * element;
    std::byte* target = out.data() + to * out_element;
    if (plain) {
      std::memcpy(target, source, static_cast<std::size_t>(run * element));
      return;
    }
    for (std::int64_t k = 0; k < run; ++k) {
      StoreConverted(source + k * element, from_type, piece.ops, target + k * out_element, to_type);
    }
  });
}

std::int64_t PositionIn(const Box& box, const Dims& at) {
  std::int64_t position = 0;
  for (std::size_t a = 0; a < at.size(); ++a) position = position * box.sizes[a] + (at[a] - box.offsets[a]);
  return position;
}

/// Calls visit(index) for every index of a box that is not empty, in row-major order.
template <typename Visit>
void ForEachIndex(const Box& box, Visit visit) {
  Dims at = box.offsets;
  for (;;) {
    visit(at);
    std::size_t a = at.size();
    while (a > 0) {
      --a;
      if (++at[a] < box.offsets[a] + box.sizes[a]) break;
      at[a] = box.offsets[a];
      if (a == 0) return;
    }
    if (at.empty()) return;
  }
}

/// An exponent stored as an integer is 2^(e - 127).
double LoadScale(const std::byte* p, DType type) {
  return type == DType::kU8 ? std::ldexp(1.0, static_cast<int>(*p) - 127) : kernels::LoadAsDouble(p, type);
}

/// E2M1: one sign, two exponent (bias 1), one mantissa bit.
double FromE2M1(unsigned code) {
  const unsigned exponent = (code >> 1U) & 3U;
  const double half = static_cast<double>(code & 1U) / 2;
  const double magnitude = exponent == 0 ? half : std::ldexp(1 + half, static_cast<int>(exponent) - 1);
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

/// Where element `at` of a dequantized tensor has its scale: worked out here once more, from the shapes alone.
Dims ScaleIndex(const expr::Node& node, Dims at) {
  const Shape& scales = node.inputs[1]->shape;
  const std::size_t rank = at.size();
  if (node.op == expr::Op::kDequantizeMxfp4) {
    at[rank - 1] /= 32;
    return at;
  }
  if (CheckedCount(scales) == 1) return Dims::Filled(scales.size(), 0);
  at[rank - 2] /= node.block().rows;
  at[rank - 1] /= node.block().cols;
  if (scales.size() < rank) at.erase(rank - 1);
  return at;
}

}  // namespace

Status Evaluator::ReadStored(int entry_index, const Box& box, std::vector<std::byte>& out) {
  const Entry& entry = side_.reader->catalog().entries[static_cast<std::size_t>(entry_index)];
  const std::int64_t element = ElementSize(entry.dtype);
  out.resize(static_cast<std::size_t>(box.count() * element));
  for (std::size_t c = 0; c < entry.chunks.size(); ++c) {
    const Chunk& chunk = entry.chunks[c];
    const std::optional<Box> met = box.rank() == 0 ? box : Intersect(chunk.box, box);
    if (!met) continue;
    Box in_chunk = *met;
    for (std::size_t a = 0; a < in_chunk.rank(); ++a) in_chunk.offsets[a] -= chunk.box.offsets[a];
    CROSSDOCK_RETURN_IF_ERROR(ReadChunk(entry_index, static_cast<std::int32_t>(c), in_chunk, part_));
    ForEachIndex(*met, [&](const Dims& at) {
      std::memcpy(out.data() + PositionIn(box, at) * element, part_.data() + PositionIn(*met, at) * element,
                  static_cast<std::size_t>(element));
    });
  }
  return OkStatus();
}

Status Evaluator::ReadDequantized(const expr::Node& node, const Box& box) {
  const expr::Node& values = *node.inputs[0];
  const expr::Node& scales = *node.inputs[1];
  const bool packed = node.op == expr::Op::kDequantizeMxfp4;
  const expr::StoredBoxes stored = expr::StoredBoxesOf(node, box);
  CROSSDOCK_RETURN_IF_ERROR(ReadStored(values.leaf, stored.values, values_));
  CROSSDOCK_RETURN_IF_ERROR(ReadStored(scales.leaf, stored.scales, scales_));
  const std::int64_t element = ElementSize(node.dtype);
  scratch_.resize(static_cast<std::size_t>(box.count() * element));
  std::byte* to = scratch_.data();
  ForEachIndex(box, [&](const Dims& at) {
    const std::byte* scale = scales_.data() + PositionIn(stored.scales, ScaleIndex(node, at)) * ElementSize(scales.dtype);
    double value = 0;
    if (packed) {
      const std::int64_t column = at.back();
      Dims byte = at;
      byte[byte.size() - 1] = column / 32;
      byte.push_back(column % 32 / 2);
      const auto pair = static_cast<unsigned>(values_[static_cast<std::size_t>(PositionIn(stored.values, byte))]);
      value = FromE2M1(column % 2 == 0 ? pair & 15U : pair >> 4U);
    } else {
      value = kernels::LoadAsDouble(values_.data() + PositionIn(stored.values, at), values.dtype);
    }
    // The product of the two is exact in double; StoreFromDouble rounds it to F32 and then to the type, as torch does.
    const double product = value * LoadScale(scale, scales.dtype);
    kernels::StoreFromDouble(std::isnan(product) ? std::numeric_limits<double>::quiet_NaN() : product, to, node.dtype);
    to += element;
  });
  return OkStatus();
}

Status Evaluator::ReadChunk(std::int32_t entry_index, std::int32_t chunk, const Box& in_chunk, std::vector<std::byte>& out) {
  const Entry& entry = side_.reader->catalog().entries[static_cast<std::size_t>(entry_index)];
  const auto read = [&](std::int64_t offset, std::span<std::byte> part) { return chunks_.ReadAt(entry_index, chunk, offset, part); };
  return ReadBox(read, entry.chunks[static_cast<std::size_t>(chunk)].box.sizes, in_chunk, ElementSize(entry.dtype), out);
}

Status Evaluator::Place(const expr::Piece& piece, const dialects::HubTensor& tensor, const Box& box,
                        std::vector<std::byte>& out) {
  if (piece.dequantize != nullptr) {
    const Box bounds = expr::LeafBounds(piece);
    CROSSDOCK_RETURN_IF_ERROR(ReadDequantized(*piece.dequantize, bounds));
    PlaceElements(piece, bounds, scratch_, piece.dequantize->dtype, tensor.dtype, box, out);
    return OkStatus();
  }
  const Catalog& catalog = side_.reader->catalog();
  const Entry& entry = catalog.entries[static_cast<std::size_t>(piece.leaf)];
  for (std::size_t c = 0; c < entry.chunks.size(); ++c) {
    const Chunk& chunk = entry.chunks[c];
    if (!chunk.box.offsets.empty() && !Intersect(chunk.box, expr::LeafBounds(piece))) continue;
    for (const expr::Piece& part : expr::ClipLeaf(piece, chunk.box)) {
      const Box bounds = expr::LeafBounds(part);
      Box in_chunk = bounds;
      for (std::size_t i = 0; i < in_chunk.rank(); ++i) in_chunk.offsets[i] -= chunk.box.offsets[i];
      CROSSDOCK_RETURN_IF_ERROR(ReadChunk(piece.leaf, static_cast<std::int32_t>(c), in_chunk, scratch_));
      PlaceElements(part, bounds, scratch_, entry.dtype, tensor.dtype, box, out);
    }
  }
  return OkStatus();
}

Status Evaluator::Evaluate(const dialects::HubTensor& tensor, const Box& box, std::vector<std::byte>& out) {
  // Zeros first: padding pieces have no source.
  out.assign(static_cast<std::size_t>(box.count() * ElementSize(tensor.dtype)), std::byte{0});
  if (box.empty()) return OkStatus();
  if (expr::IsQuantize(tensor.expr)) return Quantized(tensor, box, out);
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
  Evaluator evaluator(side, std::int64_t{64} << 20U);
  std::vector<std::byte> out;
  CROSSDOCK_RETURN_IF_ERROR(evaluator.Evaluate(tensor, box, out));
  return std::string(reinterpret_cast<const char*>(out.data()), out.size());
}

}  // namespace crossdock::verify
