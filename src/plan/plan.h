// SPDX-License-Identifier: Apache-2.0
/// \file  Plan: for every output byte, where it comes from. Pure data, complete before the first byte moves.
/// A plan is a list of tasks in the order of the source's bytes. A task reads boxes of stored chunks into its
/// buffer, moves elements from read boxes to output boxes, and writes output boxes of placed chunks.
/// Invariants: the outputs of all tasks cover every target chunk exactly once; where the writer wants a CRC-32 each
/// output is one contiguous range of its chunk; no task needs more than `task_bytes` of buffer; equal inputs give
/// equal plans whatever the thread count. It holds boxes, never runs. A task has at least one output, and
/// its moves, and the reads that lie in the scratch, cover each output (or the scratch) exactly once.
/// Threads: plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expr/dequantize.h"
#include "expr/pull_back.h"
#include "tensor/catalog.h"

namespace crossdock::plan {

/// A box of a stored source chunk, held row-major in the task's buffer at `buffer_offset`.
struct Read {
  std::int32_t entry = 0;  ///< index into the source catalog
  std::int32_t chunk = 0;
  Box box;                         ///< relative to the chunk
  std::int64_t buffer_offset = 0;  ///< bytes, a multiple of 64; any place within the scratch of a quantize step
  std::int64_t bytes = 0;
};

/// A box of a placed target chunk, held row-major in the task's buffer.
struct Output {
  std::int32_t entry = 0;  ///< index into the target catalog
  std::int32_t chunk = 0;
  Box box;                         ///< relative to the chunk
  std::int64_t buffer_offset = 0;  ///< bytes, a multiple of 64
  std::int64_t bytes = 0;
};

/// A box of a dequantized tensor, made of two reads in the task's buffer before anything is moved; held row-major.
struct Dequantize {
  std::int32_t values = 0;  ///< index into Task::reads
  std::int32_t scales = 0;  ///< index into Task::reads
  expr::DequantizeTile tile;
  DType values_type = DType::kF8E4M3;  ///< U8: MXFP4
  DType scales_type = DType::kF32;
  DType to = DType::kBF16;
  std::int64_t buffer_offset = 0;  ///< bytes, a multiple of 64
  std::int64_t bytes = 0;
};

/// Elements from a read (or zeros when read < 0) to an output, or to the scratch of a quantize step.
struct Move {
  std::int32_t read = -1;   ///< index into Task::reads, or Task::dequantize
  std::int32_t output = 0;  ///< index into Task::outputs; ignored when the task quantizes
  expr::StridedCopy copy;   ///< in elements, relative to the two boxes
  DType from = DType::kF32;
  DType to = DType::kF32;
  bool dequantized = false;          ///< `read` counts in Task::dequantize
  std::vector<expr::ElementOp> ops;  ///< empty: bytes are moved
};

struct Task;

/// A tensor whose blocks several processes feed is quantized in parts (share_source.h): each takes the largest values of what it has
/// of every block, all learn the largest of all, and each quantizes its own elements.
struct QuantizePart {
  std::int64_t first = 0;            ///< where the tensor's blocks, row-major, begin among all that are told each other
  std::int64_t across = 0;           ///< blocks beside each other
  std::int64_t block_rows = 0, block_cols = 0;
  std::int64_t row = 0, col = 0;     ///< of the scratch in the tensor
};

/// The moves, and reads that lie in it, fill a row-major scratch of `rows` x `cols` elements of `dtype`; the kernel writes the q
/// output and the s output. rows and cols are whole blocks, but for the tensor's own edge.
/// A tensor with one scale that is too large for this has `bands`: tasks of some rows each, which are worked off twice, for the
/// largest value and with the scale that follows. The task around them has all their reads and the whole outputs, and its buffer
/// holds one band at a time; it has no moves and no scratch of its own.
struct Quantize {
  expr::Fp8Format fp8;
  DType dtype = DType::kBF16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t scratch_offset = 0;  ///< bytes in the task's buffer
  std::int32_t q_output = 0;
  std::int32_t s_output = 0;
  std::vector<Task> bands;
  /// Set: q_output is a box like any other, and there is no s_output; or there is no q_output (rows = 0), and s_output is written
  /// from what was told.
  std::optional<QuantizePart> part;
};

struct Task {
  std::vector<Read> reads;
  std::vector<Output> outputs;
  std::vector<Move> moves;
  std::vector<Dequantize> dequantize;
  std::shared_ptr<const Quantize> quantize;  ///< of few tasks only: it takes no room in the others
  std::int64_t buffer_bytes = 0;  ///< outputs + scratch + dequantized boxes + reads; a multiple of 64
};

struct Plan {
  std::vector<Task> tasks;
  std::int64_t bytes_read = 0;     ///< tensor bytes
  std::int64_t bytes_written = 0;  ///< tensor bytes
  std::int64_t task_bytes = 0;     ///< no task's buffer_bytes is larger
  std::int64_t peak_memory = 0;    ///< see planner.h
  std::string hash;                ///< of everything that decides the output's bytes (resume, receipts)
};

}  // namespace crossdock::plan
