// SPDX-License-Identifier: Apache-2.0
#include "naive.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cast.h"
#include "kernels/copy_strided.h"

namespace crossdock::plan {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Calls body(index) for every position of a shape, in row-major order.
void ForEachIndex(const Shape& shape, const std::function<void(const Dims&)>& body) {
  if (CheckedCount(shape) == 0) return;
  Dims at = Dims::Filled(shape.size(), 0);
  while (true) {
    body(at);
    std::size_t axis = shape.size();
    while (axis > 0 && ++at[axis - 1] == shape[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

std::int64_t Offset(const Shape& shape, const Dims& at) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) offset = offset * shape[i] + at[i];
  return offset;
}

Array Empty(const expr::Expr& node) {
  const std::int64_t bytes = CheckedCount(node->shape) * ElementSize(node->dtype);
  return {node->dtype, node->shape, Bytes(Size(bytes), std::byte{0})};
}

void CopyElement(const Array& from, const Dims& f, Array& to, const Dims& t) {
  const std::int64_t n = ElementSize(to.dtype);
  std::memcpy(to.bytes.data() + Offset(to.shape, t) * n, from.bytes.data() + Offset(from.shape, f) * n, Size(n));
}

Array Elementwise(const expr::Expr& node, const Array& in) {
  Array out = Empty(node);
  const std::int64_t count = CheckedCount(node->shape);
  for (std::int64_t i = 0; i < count; ++i) {
    double v = kernels::LoadAsDouble(in.bytes.data() + i * ElementSize(in.dtype), in.dtype);
    if (node->op == expr::Op::kScale) v *= node->factor();
    if (node->op == expr::Op::kOffset) v += node->factor();
    kernels::StoreFromDouble(v, out.bytes.data() + i * ElementSize(out.dtype), out.dtype);
  }
  return out;
}

Array Movement(const expr::Expr& node, const std::vector<Array>& in) {
  Array out = Empty(node);
  if (node->op == expr::Op::kReshape) {
    out.bytes = in[0].bytes;
    return out;
  }
  std::int64_t base = 0;  // kConcat: where the current input begins
  for (const Array& part : in) {
    ForEachIndex(part.shape, [&](const Dims& at) {
      Dims to = at;
      const auto axis = Size(node->axis);
      switch (node->op) {
        case expr::Op::kTranspose:
          for (std::size_t i = 0; i < to.size(); ++i) to[i] = at[Size(node->axes()[i])];
          break;
        case expr::Op::kReverse:
          to[axis] = part.shape[axis] - 1 - at[axis];
          break;
        case expr::Op::kConcat:
          to[axis] += base;
          break;
        case expr::Op::kPad:
          for (std::size_t i = 0; i < to.size(); ++i) to[i] += node->offsets()[i];
          break;
        case expr::Op::kSlice:
          for (std::size_t i = 0; i < to.size(); ++i) {
            to[i] -= node->offsets()[i];
            if (to[i] < 0 || to[i] >= node->shape[i]) return;
          }
          break;
        default:
          FAIL() << "no movement";
      }
      CopyElement(part, at, out, to);
    });
    if (node->op == expr::Op::kConcat) base += part.shape[Size(node->axis)];
  }
  return out;
}

}  // namespace

Array Numbered(DType dtype, const Shape& shape, std::uint64_t seed) {
  const std::int64_t count = CheckedCount(shape);
  Array out{dtype, shape, Bytes(Size(count * ElementSize(dtype)))};
  std::mt19937_64 rng(seed);
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* p = out.bytes.data() + i * ElementSize(dtype);
    if (IsFloating(dtype)) {
      kernels::StoreFromDouble(std::ldexp(static_cast<double>(rng() % 4001) - 2000.0, -9), p, dtype);
    } else {
      for (std::int64_t b = 0; b < ElementSize(dtype); ++b) p[b] = static_cast<std::byte>(rng() & 0xFFU);
    }
  }
  return out;
}

namespace {

double ScaleOf(const Array& s, std::int64_t at) {
  const std::byte* p = s.bytes.data() + at * ElementSize(s.dtype);
  return s.dtype == DType::kU8 ? std::ldexp(1.0, static_cast<int>(*p) - 127) : kernels::LoadAsDouble(p, s.dtype);
}

/// There is one NaN.
double Product(double value, double scale) { return std::isnan(value * scale) ? std::nan("") : value * scale; }

/// E2M1 codes in order of magnitude.
double Nibble(const std::byte* row, std::int64_t at) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const unsigned code = (static_cast<unsigned>(row[at / 2]) >> (at % 2 == 0 ? 0U : 4U)) & 15U;
  return code < 8 ? kValues[code] : -kValues[code - 8];
}

/// Whole tensors, element by element.
Array NaiveDequantize(const expr::Expr& node, const Array& q, const Array& s) {
  Array out = Empty(node);
  const std::size_t rank = node->shape.size();
  const bool packed = node->op == expr::Op::kDequantizeMxfp4;
  std::int64_t i = 0;
  ForEachIndex(node->shape, [&](const Dims& at) {
    Dims scale = at;
    scale[rank - 2] /= packed ? 1 : node->block().rows;
    scale[rank - 1] /= packed ? 32 : node->block().cols;
    if (s.shape.size() < rank) scale.erase(rank - 1);
    const std::int64_t place = CheckedCount(s.shape) == 1 ? 0 : Offset(s.shape, scale);
    const double value = packed ? Nibble(q.bytes.data(), i) : kernels::LoadAsDouble(q.bytes.data() + i, q.dtype);
    kernels::StoreFromDouble(Product(value, ScaleOf(s, place)), out.bytes.data() + i * ElementSize(out.dtype), out.dtype);
    ++i;
  });
  return out;
}

}  // namespace

Array Evaluate(const expr::Expr& root, const std::vector<Array>& leaves) {
  if (root->op == expr::Op::kLeaf) return leaves[Size(root->leaf)];
  std::vector<Array> in;
  for (const expr::Expr& e : root->inputs) in.push_back(Evaluate(e, leaves));
  switch (root->op) {
    case expr::Op::kCast:
    case expr::Op::kScale:
    case expr::Op::kOffset:
      return Elementwise(root, in[0]);
    case expr::Op::kDequantize:
    case expr::Op::kDequantizeMxfp4:
      return NaiveDequantize(root, in[0], in[1]);
    case expr::Op::kQuantizeValues:
    case expr::Op::kQuantizeScales: {
      Array q, s;
      NaiveQuantize(in[0], root->fp8(), q, s);
      return root->op == expr::Op::kQuantizeValues ? q : s;
    }
    default:
      return Movement(root, in);
  }
}

void NaiveQuantize(const Array& w, const expr::Fp8Format& fp8, Array& q, Array& s) {
  const expr::BlockFormat& block = fp8.block;
  const std::int64_t rows = w.shape[0], cols = w.shape[1];
  const Shape scales = {(rows + block.rows - 1) / block.rows, (cols + block.cols - 1) / block.cols};
  q = {DType::kF8E4M3, w.shape, Bytes(Size(rows * cols))};
  s = {DType::kF32, scales, Bytes(Size(CheckedCount(scales) * 4))};
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return kernels::LoadAsDouble(w.bytes.data() + (r * cols + c) * ElementSize(w.dtype), w.dtype);
  };
  for (std::int64_t r0 = 0; r0 < rows; r0 += block.rows) {
    for (std::int64_t c0 = 0; c0 < cols; c0 += block.cols) {
      double amax = 0;
      const std::int64_t r1 = std::min(rows, r0 + block.rows), c1 = std::min(cols, c0 + block.cols);
      for (std::int64_t r = r0; r < r1; ++r) {
        for (std::int64_t c = c0; c < c1; ++c) amax = std::max(amax, std::fabs(at(r, c)));
      }
      const double scale = std::max(amax, 1e-12) / 448;
      kernels::StoreFromDouble(scale, s.bytes.data() + 4 * Offset(scales, {r0 / block.rows, c0 / block.cols}), s.dtype);
      for (std::int64_t r = r0; r < r1; ++r) {
        for (std::int64_t c = c0; c < c1; ++c) {
          kernels::StoreFromDouble(at(r, c) / scale, q.bytes.data() + r * cols + c, q.dtype);
        }
      }
    }
  }
  if (fp8.whole) s.shape = {1};
}

Entry MakeEntry(std::string name, DType dtype, Shape shape, std::vector<Box> boxes, Slot slot) {
  Entry entry{std::move(name), slot, dtype, shape, {}};
  if (boxes.empty()) boxes.push_back(Box::Whole(shape));
  for (Box& box : boxes) {
    Chunk chunk;
    chunk.box = box;
    entry.chunks.push_back(chunk);
  }
  return entry;
}

std::vector<Box> Grid(const Shape& shape, const std::vector<std::int64_t>& parts) {
  Shape cells;
  for (const std::int64_t p : parts) cells.push_back(p);
  std::vector<Box> out;
  ForEachIndex(cells, [&](const Dims& at) {
    Box box;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::int64_t begin = shape[i] * at[i] / parts[i];
      box.offsets.push_back(begin);
      box.sizes.push_back(shape[i] * (at[i] + 1) / parts[i] - begin);
    }
    out.push_back(box);
  });
  return out;
}

MemoryCheckpoint Place(std::vector<Entry> entries, int files_of) {
  MemoryCheckpoint out;
  out.files.resize(Size(files_of));
  std::int32_t next = 0;
  for (Entry& e : entries) {
    for (Chunk& c : e.chunks) {
      Bytes& file = out.files[Size(next)];
      c.file = next;
      c.bytes.offset = static_cast<std::int64_t>(file.size()) + 7;
      c.bytes.length = c.box.count() * ElementSize(e.dtype);
      file.resize(Size(c.bytes.end()), std::byte{0xEE});
      next = (next + 1) % files_of;
    }
  }
  for (int i = 0; i < files_of; ++i) {
    FileRef ref;
    ref.path = "file-" + std::to_string(i);
    ref.identity.size = static_cast<std::int64_t>(out.files[Size(i)].size());
    out.catalog.files.push_back(ref);
  }
  out.catalog.entries = std::move(entries);
  return out;
}

namespace {

void MoveArray(MemoryCheckpoint& checkpoint, std::size_t entry, Array& array, bool store) {
  const Entry& e = checkpoint.catalog.entries[entry];
  const std::int64_t n = ElementSize(e.dtype);
  for (const Chunk& c : e.chunks) {
    std::int64_t i = 0;
    ForEachIndex(c.box.sizes, [&](const Dims& at) {
      Dims global = at;
      for (std::size_t k = 0; k < at.size(); ++k) global[k] += c.box.offsets[k];
      std::byte* inside = checkpoint.files[Size(c.file)].data() + c.bytes.offset + i++ * n;
      std::byte* outside = array.bytes.data() + Offset(e.shape, global) * n;
      std::memcpy(store ? inside : outside, store ? outside : inside, Size(n));
    });
  }
}

/// The place in its file of each element of a box of a chunk, in the box's row-major order.
void ForEachPlace(const Chunk& chunk, const Box& box, std::int64_t n, const std::function<void(std::size_t)>& body) {
  ForEachIndex(box.sizes, [&](const Dims& at) {
    Dims inside = at;
    for (std::size_t k = 0; k < at.size(); ++k) inside[k] += box.offsets[k];
    body(Size(chunk.bytes.offset + Offset(chunk.box.sizes, inside) * n));
  });
}

void RunMove(const Move& m, const std::byte* from, std::byte* to) {
  std::vector<kernels::StrideDim> dims;
  for (const auto& d : m.copy.dims) dims.push_back({d.count, d.from_stride, d.to_stride});
  if (from == nullptr) return kernels::FillStrided(to, m.copy.to, dims, ElementSize(m.to));
  if (m.ops.empty()) {
    ASSERT_EQ(m.from, m.to);
    return kernels::CopyStridedReference(from, m.copy.from, to, m.copy.to, dims, ElementSize(m.to));
  }
  Shape counts;
  for (const auto& d : m.copy.dims) counts.push_back(d.count);
  ForEachIndex(counts, [&](const Dims& at) {
    std::int64_t f = m.copy.from, t = m.copy.to;
    for (std::size_t k = 0; k < at.size(); ++k) {
      f += at[k] * m.copy.dims[k].from_stride;
      t += at[k] * m.copy.dims[k].to_stride;
    }
    std::byte value[8];
    std::memcpy(value, from + f * ElementSize(m.from), Size(ElementSize(m.from)));
    for (const expr::ElementOp& op : m.ops) {
      double v = kernels::LoadAsDouble(value, op.from);
      if (op.op == expr::Op::kScale) v *= op.factor;
      if (op.op == expr::Op::kOffset) v += op.factor;
      kernels::StoreFromDouble(v, value, op.to);
    }
    std::memcpy(to + t * ElementSize(m.to), value, Size(ElementSize(m.to)));
  });
}

void RunQuantize(const Task& task, Bytes& buffer) {
  const Quantize& k = *task.quantize;
  Array w{k.dtype, {k.rows, k.cols}, {}};
  const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(k.scratch_offset);
  w.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(k.rows * k.cols * ElementSize(k.dtype)));
  Array q, s;
  NaiveQuantize(w, k.fp8, q, s);
  const auto put = [&](std::int32_t output, const Array& a) {
    const Output& o = task.outputs[Size(output)];
    ASSERT_EQ(o.bytes, static_cast<std::int64_t>(a.bytes.size()));
    std::copy(a.bytes.begin(), a.bytes.end(), buffer.begin() + static_cast<std::ptrdiff_t>(o.buffer_offset));
  };
  put(k.q_output, q);
  put(k.s_output, s);
}

/// A step as its fields say.
void RunDequantize(const Dequantize& d, const Task& task, Bytes& buffer) {
  const Read& values = task.reads[Size(d.values)];
  const Read& scales = task.reads[Size(d.scales)];
  const expr::DequantizeTile& t = d.tile;
  const bool packed = d.values_type == DType::kU8;
  ASSERT_EQ(d.bytes, t.batches * t.rows * t.cols * ElementSize(d.to));
  ASSERT_LE(d.buffer_offset + d.bytes, task.buffer_bytes);
  ASSERT_EQ(values.bytes, t.batches * t.rows * (packed ? t.scale_cols * 16 : t.cols));
  const std::byte* in = buffer.data() + values.buffer_offset;
  std::byte* out = buffer.data() + d.buffer_offset;
  const Array s{d.scales_type, {}, Bytes(buffer.begin() + static_cast<std::ptrdiff_t>(scales.buffer_offset),
                                         buffer.begin() + static_cast<std::ptrdiff_t>(scales.buffer_offset + scales.bytes))};
  for (std::int64_t b = 0; b < t.batches; ++b) {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      for (std::int64_t c = 0; c < t.cols; ++c) {
        const std::int64_t scale = b * t.scale_batch + (t.first_row + r) / t.block_rows * t.scale_cols + (t.first_col + c) / t.block_cols;
        ASSERT_LT(scale * ElementSize(d.scales_type), scales.bytes);
        const double value = packed ? Nibble(in + r * t.scale_cols * 16, t.first_col + c) : kernels::LoadAsDouble(in++, d.values_type);
        kernels::StoreFromDouble(Product(value, ScaleOf(s, scale)), out, d.to);
        out += ElementSize(d.to);
      }
    }
  }
}

/// The buffer of a task once all is read and moved.
void LoadTask(const Task& task, const MemoryCheckpoint& source, Bytes& buffer) {
  buffer.assign(Size(task.buffer_bytes), std::byte{0xCD});
  for (const Read& r : task.reads) {
    const Entry& e = source.catalog.entries[Size(r.entry)];
    const Chunk& c = e.chunks[Size(r.chunk)];
    const std::int64_t n = ElementSize(e.dtype);
    ASSERT_TRUE(r.box.FitsIn(c.box.sizes));
    ASSERT_EQ(r.bytes, r.box.count() * n);
    ASSERT_LE(r.buffer_offset + r.bytes, task.buffer_bytes);
    std::size_t at = Size(r.buffer_offset);
    ForEachPlace(c, r.box, n, [&](std::size_t place) {
      std::memcpy(buffer.data() + at, source.files[Size(c.file)].data() + place, Size(n));
      at += Size(n);
    });
  }
  for (const Dequantize& d : task.dequantize) RunDequantize(d, task, buffer);
  for (const Move& m : task.moves) {
    const std::int64_t to = task.quantize ? task.quantize->scratch_offset : task.outputs[Size(m.output)].buffer_offset;
    const std::byte* from = m.read < 0 ? nullptr
                                       : buffer.data() + (m.dequantized ? task.dequantize[Size(m.read)].buffer_offset
                                                                        : task.reads[Size(m.read)].buffer_offset);
    RunMove(m, from, buffer.data() + to);
  }
}

void WriteOutput(const Output& o, const std::byte* from, MemoryCheckpoint& target, std::vector<std::vector<int>>& written) {
  const Entry& e = target.catalog.entries[Size(o.entry)];
  const Chunk& c = e.chunks[Size(o.chunk)];
  const std::int64_t n = ElementSize(e.dtype);
  ASSERT_TRUE(o.box.FitsIn(c.box.sizes));
  ASSERT_EQ(o.bytes, o.box.count() * n);
  ForEachPlace(c, o.box, n, [&](std::size_t place) {
    std::memcpy(target.files[Size(c.file)].data() + place, from, Size(n));
    for (std::size_t b = 0; b < Size(n); ++b) ++written[Size(c.file)][place + b];
    from += n;
  });
}

/// All bands make the matrix, which has one scale.
void RunBands(const Task& task, const MemoryCheckpoint& source, MemoryCheckpoint& target, std::vector<std::vector<int>>& written) {
  const Quantize& k = *task.quantize;
  Array w{k.dtype, {k.rows, k.cols}, {}};
  for (const Task& band : k.bands) {
    Bytes buffer;
    LoadTask(band, source, buffer);
    ASSERT_LE(band.buffer_bytes, task.buffer_bytes);
    const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(band.quantize->scratch_offset);
    w.bytes.insert(w.bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(band.quantize->rows * k.cols * ElementSize(k.dtype)));
  }
  ASSERT_EQ(w.bytes.size(), Size(k.rows * k.cols * ElementSize(k.dtype)));
  Array q, s;
  NaiveQuantize(w, k.fp8, q, s);
  WriteOutput(task.outputs[Size(k.q_output)], q.bytes.data(), target, written);
  WriteOutput(task.outputs[Size(k.s_output)], s.bytes.data(), target, written);
}

void RunTask(const Task& task, const MemoryCheckpoint& source, MemoryCheckpoint& target, std::vector<std::vector<int>>& written) {
  if (task.quantize && !task.quantize->bands.empty()) return RunBands(task, source, target, written);
  Bytes buffer;
  LoadTask(task, source, buffer);
  if (task.quantize) RunQuantize(task, buffer);
  for (const Output& o : task.outputs) WriteOutput(o, buffer.data() + o.buffer_offset, target, written);
}

}  // namespace

void StoreArray(MemoryCheckpoint& checkpoint, std::size_t entry, const Array& array) {
  Array copy = array;
  MoveArray(checkpoint, entry, copy, true);
}

Array LoadArray(const MemoryCheckpoint& checkpoint, std::size_t entry) {
  const Entry& e = checkpoint.catalog.entries[entry];
  Array out{e.dtype, e.shape, Bytes(Size(CheckedCount(e.shape) * ElementSize(e.dtype)))};
  MemoryCheckpoint copy = checkpoint;
  MoveArray(copy, entry, out, false);
  return out;
}

void RunPlan(const Plan& plan, const MemoryCheckpoint& source, MemoryCheckpoint& target,
             std::vector<std::vector<int>>& written) {
  written.clear();
  for (const Bytes& f : target.files) written.emplace_back(f.size(), 0);
  for (const Task& t : plan.tasks) RunTask(t, source, target, written);
}

void ExpectPlanGives(const Plan& plan, const MemoryCheckpoint& source, MemoryCheckpoint target,
                     const std::vector<expr::Expr>& exprs) {
  std::vector<std::vector<int>> written;
  RunPlan(plan, source, target, written);
  std::vector<Array> leaves;
  for (std::size_t i = 0; i < source.catalog.entries.size(); ++i) leaves.push_back(LoadArray(source, i));
  std::int64_t bytes_written = 0;
  for (std::size_t i = 0; i < exprs.size(); ++i) {
    const Array want = Evaluate(exprs[i], leaves);
    EXPECT_EQ(LoadArray(target, i).bytes, want.bytes) << target.catalog.entries[i].name;
    bytes_written += static_cast<std::int64_t>(want.bytes.size());
    for (const Chunk& c : target.catalog.entries[i].chunks) {
      for (std::int64_t b = c.bytes.offset; b < c.bytes.end(); ++b) {
        ASSERT_EQ(written[Size(c.file)][Size(b)], 1) << target.catalog.entries[i].name << " byte " << b;
      }
    }
  }
  std::int64_t touched = 0, read = 0;
  for (const std::vector<int>& f : written) touched += std::count_if(f.begin(), f.end(), [](int n) { return n != 0; });
  for (const Task& t : plan.tasks) {
    EXPECT_LE(t.buffer_bytes, plan.task_bytes);
    const std::int64_t times = t.quantize && !t.quantize->bands.empty() ? 2 : 1;
    for (const Read& r : t.reads) read += r.bytes * times;
  }
  EXPECT_EQ(touched, bytes_written);  // nothing outside the chunks
  EXPECT_EQ(plan.bytes_written, bytes_written);
  EXPECT_EQ(plan.bytes_read, read);
}

void ExpectContiguousOutputs(const Plan& plan, const Catalog& target) {
  for (const Task& t : plan.tasks) {
    for (const Output& o : t.outputs) {
      const Entry& e = target.entries[Size(o.entry)];
      const Box& chunk = e.chunks[Size(o.chunk)].box;
      bool inner_whole = true;  // axes inside the current one are whole
      for (std::size_t axis = o.box.rank(); axis > 0; --axis) {
        EXPECT_TRUE(inner_whole || o.box.sizes[axis - 1] == 1)
            << e.name << " output " << ToString(o.box) << " of chunk " << ToString(chunk);
        inner_whole = inner_whole && o.box.sizes[axis - 1] == chunk.sizes[axis - 1];
      }
    }
  }
}

}  // namespace crossdock::plan
