// SPDX-License-Identifier: Apache-2.0
/// \file  The judge of the planner's tests: checkpoints that live in memory, expressions worked out node by node over
/// whole arrays, and plans worked off one element at a time. Shares with the engine only what it must: catalogs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "expr/expr.h"
#include "plan/plan.h"
#include "tensor/catalog.h"

namespace crossdock::plan {

using Bytes = std::vector<std::byte>;

/// Row-major elements of one tensor.
struct Array {
  DType dtype = DType::kF32;
  Shape shape;
  Bytes bytes;
};

/// Distinct, finite, moderate values for any floating or integer dtype.
[[nodiscard]] Array Numbered(DType dtype, const Shape& shape, std::uint64_t seed);

/// `root` over whole arrays. Quantized roots are worked out over their input.
[[nodiscard]] Array Evaluate(const expr::Expr& root, const std::vector<Array>& leaves);

/// One block format quantized the slow way: q of FP8 E4M3, s of F32.
void NaiveQuantize(const Array& w, const expr::Fp8Format& fp8, Array& q, Array& s);

/// A catalog with its bytes. Chunks are laid one after the other in `files_of` files, round-robin, with a gap of some
/// bytes before each, so that wrong offsets do not hit anything right.
struct MemoryCheckpoint {
  Catalog catalog;
  std::vector<Bytes> files;
};
/// Entries with chunks to be placed (their boxes are set).
[[nodiscard]] MemoryCheckpoint Place(std::vector<Entry> entries, int files_of = 1);
/// One entry cut into `boxes`; whole when none are given.
[[nodiscard]] Entry MakeEntry(std::string name, DType dtype, Shape shape, std::vector<Box> boxes = {},
                              Slot slot = Slot::kParam);
/// Equal cuts: parts[i] along axis i.
[[nodiscard]] std::vector<Box> Grid(const Shape& shape, const std::vector<std::int64_t>& parts);

void StoreArray(MemoryCheckpoint& checkpoint, std::size_t entry, const Array& array);
[[nodiscard]] Array LoadArray(const MemoryCheckpoint& checkpoint, std::size_t entry);

/// Works off a plan; `written` counts how often each byte of each target file was written.
void RunPlan(const Plan& plan, const MemoryCheckpoint& source, MemoryCheckpoint& target,
             std::vector<std::vector<int>>& written);

/// Runs `plan` and expects (as gtest failures) that every target equals Evaluate, that each byte of a chunk was written
/// once and no other, that tasks keep their bound and their buffers, and that the totals are right.
void ExpectPlanGives(const Plan& plan, const MemoryCheckpoint& source, MemoryCheckpoint target,
                     const std::vector<expr::Expr>& exprs);

/// Expects each output to be one contiguous range of its chunk.
void ExpectContiguousOutputs(const Plan& plan, const Catalog& target);

}  // namespace crossdock::plan
