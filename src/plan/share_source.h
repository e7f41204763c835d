// SPDX-License-Identifier: Apache-2.0
/// \file  The share of a plan that one process carries out when the source's chunks lie with several of them (ranks of a trainer
/// that holds the tensors in memory). Each writes what its own chunks feed and nothing else: no element passes between processes.
/// Invariants: the outputs of all shares cover every target chunk exactly once, and the bytes are those of MakePlan's plan. Padding
/// goes to the lowest rank that feeds the tensor; a tensor that every rank can read is one rank's, in turn.
/// Quantized tensors: one that a single rank feeds is worked off there. Where each rank feeds whole blocks it writes them and their
/// scales. Where blocks are cut the share has parts (plan.h, QuantizePart): the ranks tell each other the largest value that each
/// has of every block, `amaxes` floats in the same order for all; each then quantizes its own elements, and the lowest rank that feeds
/// the tensor writes the scales. The largest of the largest is exact, so the bytes stay the same.
/// With contiguous_outputs the parts that ranks write of one chunk each lie in a row in it, so that their CRC-32 can be joined.
/// Cost: a tensor that is cut by columns is written in one piece a row by each rank (docs/performance.md).
/// Threads: pure.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "crossdock/result.h"
#include "plan/planner.h"

namespace crossdock::plan {

/// The rank that holds a chunk of the source; kAnyRank: each of them can read it.
using OwnerOf = std::function<int(std::int32_t entry, std::int32_t chunk)>;
inline constexpr int kAnyRank = -1;

struct Ranks {
  int rank = 0;   ///< mine
  int count = 1;
};

struct Share {
  Plan plan;                  ///< its hash is the same for all ranks, and says all but how their shares are cut into tasks
  std::int64_t amaxes = 0;    ///< the same for all ranks; 0: nothing is quantized in parts
};

/// Errors: those of MakePlan; kUnsupported for a tensor that is dequantized of chunks of several ranks. REQUIRES: no chunk of the target is
/// encoded, and of a pair no CRC-32 is wanted.
[[nodiscard]] Result<Share> MakeShareOfSource(const Catalog& source, const Catalog& target, std::span<const expr::Expr> exprs,
                                              const OwnerOf& owner, const Ranks& ranks, const PlanOptions& options);

}  // namespace crossdock::plan
