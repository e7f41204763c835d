// SPDX-License-Identifier: Apache-2.0
#include "execute/move.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "expr/lossless_cast.h"
#include "kernels/cast.h"
#include "kernels/copy_strided.h"

namespace crossdock::execute {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements; at most 8 KiB each of two buffers
constexpr std::size_t kBlockBytes = 8 * kBlock;
using BlockBuffer = std::array<std::byte, kBlockBytes>;

std::vector<kernels::StrideDim> KernelDims(const expr::StridedCopy& copy) {
  std::vector<kernels::StrideDim> dims;
  dims.reserve(copy.dims.size());
  for (const auto& dim : copy.dims) dims.push_back({dim.count, dim.from_stride, dim.to_stride});
  return dims;
}

void Arithmetic(const expr::ElementOp& op, std::byte* values, std::int64_t count) {
  const std::int64_t element = ElementSize(op.from);
  for (std::int64_t i = 0; i < count; ++i, values += element) {
    const double value = kernels::LoadAsDouble(values, op.from);
    kernels::StoreFromDouble(op.op == expr::Op::kScale ? value * op.factor : value + op.factor, values, op.from);
  }
}

/// The elements of one contiguous block through all ops; the answer lies in one of the two buffers.
const std::byte* Transform(const std::vector<expr::ElementOp>& ops, const std::byte* in, DType type, std::int64_t count,
                           BlockBuffer& a, BlockBuffer& b) {
  const std::byte* now = in;
  for (const expr::ElementOp& op : ops) {
    CROSSDOCK_CHECK(op.from == type);
    BlockBuffer& next = now == a.data() ? b : a;
    if (op.op == expr::Op::kCast) {
      kernels::Cast(now, op.from, next.data(), op.to, count);
      type = op.to;
    } else {
      std::copy_n(now, count * ElementSize(type), next.data());
      Arithmetic(op, next.data(), count);
    }
    now = next.data();
  }
  return now;
}

/// One innermost loop of a move with ops: `count` elements, strides in elements. Returns the overflows.
std::int64_t TransformLoop(const plan::Move& move, const std::byte* from, std::int64_t from_stride, std::byte* to,
                   std::int64_t to_stride, std::int64_t count) {
  const std::int64_t from_size = ElementSize(move.from);
  const std::int64_t to_size = ElementSize(move.to);
  if (from_stride == 1 && to_stride == 1 && move.ops.size() == 1 && move.ops[0].op == expr::Op::kCast) {
    if (expr::IsLosslessCast(move.from, move.to)) {
      kernels::Cast(from, move.from, to, move.to, count);
      return 0;
    }
    std::int64_t overflows = 0;
    for (std::int64_t done = 0; done < count; done += kBlock) {  // counted while the block is in the first cache
      const std::int64_t n = std::min(kBlock, count - done);
      kernels::Cast(from, move.from, to, move.to, n);
      overflows += kernels::CountOverflows(from, move.from, to, move.to, n);
      from += n * from_size;
      to += n * to_size;
    }
    return overflows;
  }
  std::int64_t overflows = 0;
  BlockBuffer gathered;
  BlockBuffer a;
  BlockBuffer b;
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t n = std::min(kBlock, count - done);
    const std::byte* in = from + done * from_stride * from_size;
    if (from_stride != 1) {
      const kernels::StrideDim gather{n, from_stride, 1};
      kernels::CopyStrided(in, 0, gathered.data(), 0, std::span(&gather, 1), from_size);
      in = gathered.data();
    }
    const std::byte* out = Transform(move.ops, in, move.from, n, a, b);
    overflows += kernels::CountOverflows(in, move.from, out, move.to, n);
    const kernels::StrideDim scatter{n, 1, to_stride};
    kernels::CopyStrided(out, 0, to + done * to_stride * to_size, 0, std::span(&scatter, 1), to_size);
  }
  return overflows;
}

std::int64_t RunWithOps(const plan::Move& move, const std::byte* from, std::byte* to) {
  const auto& dims = move.copy.dims;
  const std::size_t outer = dims.empty() ? 0 : dims.size() - 1;
  std::int64_t count = 1;
  std::int64_t from_stride = 1;
  std::int64_t to_stride = 1;
  if (!dims.empty()) {
    count = dims.back().count;
    from_stride = dims.back().from_stride;
    to_stride = dims.back().to_stride;
  }
  std::vector<std::int64_t> at(outer, 0);
  const std::byte* in = from + move.copy.from * ElementSize(move.from);
  std::byte* out = to + move.copy.to * ElementSize(move.to);
  const std::int64_t from_size = ElementSize(move.from);
  const std::int64_t to_size = ElementSize(move.to);
  std::int64_t overflows = 0;
  while (true) {
    overflows += TransformLoop(move, in, from_stride, out, to_stride, count);
    std::size_t i = outer;
    while (i > 0) {
      --i;
      in += dims[i].from_stride * from_size;
      out += dims[i].to_stride * to_size;
      if (++at[i] < dims[i].count) break;
      in -= dims[i].from_stride * dims[i].count * from_size;
      out -= dims[i].to_stride * dims[i].count * to_size;
      at[i] = 0;
      if (i == 0) return overflows;
    }
    if (outer == 0) return overflows;
  }
}

}  // namespace

std::int64_t RunMove(const plan::Move& move, const std::byte* from, std::byte* to) {
  if (move.read < 0) {
    kernels::FillStrided(to, move.copy.to, KernelDims(move.copy), ElementSize(move.to));
  } else if (move.ops.empty()) {
    CROSSDOCK_CHECK(move.from == move.to);
    kernels::CopyStrided(from, move.copy.from, to, move.copy.to, KernelDims(move.copy), ElementSize(move.to));
  } else {
    return RunWithOps(move, from, to);
  }
  return 0;
}

}  // namespace crossdock::execute
