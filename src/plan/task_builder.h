// SPDX-License-Identifier: Apache-2.0
/// \file  TaskBuilder: one tile of one job as a Task: which boxes to read, how elements move, which boxes to write.
/// A tile is a box of the *global* target tensor, whatever its chunks are: a band of rows, read once, feeds the column
/// cuts of all tensor-parallel ranks.
/// Reads are in the order of their places in files; moves in the order of their reads, padding last.
/// Ownership: both catalogs must outlive the builder. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/chunk_index.h"
#include "plan/jobs.h"
#include "plan/plan.h"

namespace crossdock::plan {

/// Contiguous runs that a tile asks of files.
struct RunCounts {
  std::int64_t read = 0;
  std::int64_t written = 0;
  [[nodiscard]] std::int64_t total() const { return read + written; }
};

class TaskBuilder {
 public:
  TaskBuilder(const Catalog& source, const Catalog& target);

  /// REQUIRES: `tile` fits the job's tensor; of a pair it lies in one of PairRegions and is whole blocks.
  [[nodiscard]] Task Build(const Job& job, const Box& tile);

  /// The outputs of a tile alone, without a place in a buffer: q and s of a pair, for a task that is put together of others.
  [[nodiscard]] Task BuildOutputs(const Job& job, const Box& tile);

  /// The scales of a pair that is quantized in parts, from what the parts tell each other: a task for each chunk.
  [[nodiscard]] std::vector<Task> BuildScales(const Job& job);

  /// The bytes that a tile's outputs (and scratch) take: a lower bound of Build(...).buffer_bytes.
  [[nodiscard]] std::int64_t OutputBytes(const Job& job, const Box& tile) const;

  /// How many contiguous runs the tile reads and writes: what cutting tries to keep few.
  [[nodiscard]] RunCounts Runs(const Job& job, const Box& tile);

  /// True when cutting `tile` at `at` on `axis` leaves what each chunk of the target gets contiguous, given that it is.
  [[nodiscard]] bool KeepsContiguous(const Job& job, const Box& tile, std::size_t axis, std::int64_t at);

 private:
  struct Place {
    std::int32_t entry, chunk;
    Box box;  ///< of the output, in the target's coordinates
  };
  /// A dequantized tensor as if it were stored: a chunk for each pair of stored chunks, whose numbers stand beside it.
  struct Dequantized {
    Entry entry;
    std::vector<std::pair<std::int32_t, std::int32_t>> stored;
    std::optional<ChunkIndex> index;
  };
  /// Values, scales, their blocks and the dtype that they give.
  using DequantizeKey = std::tuple<int, int, std::int64_t, std::int64_t, DType>;
  [[nodiscard]] static DequantizeKey KeyOf(const expr::Node& node);
  [[nodiscard]] const Dequantized& DequantizedBy(const expr::Node& node);
  /// Where the leaf side of a piece lies: chunks of a stored tensor, or of a dequantized one.
  struct Leaves {
    const Entry* entry;
    const ChunkIndex* index;
  };
  [[nodiscard]] Leaves LeavesOf(const expr::Piece& piece);
  [[nodiscard]] const ChunkIndex& SourceIndex(std::int32_t entry);
  [[nodiscard]] const ChunkIndex& TargetIndex(std::int32_t entry);
  [[nodiscard]] std::vector<Place> Outputs(std::int32_t entry, const Box& tile);
  [[nodiscard]] std::vector<std::size_t> SinksOf(const Job& job, const std::vector<Place>& sinks, const Box& region);
  /// What moves from one read, or from one dequantized box.
  struct Taken {
    Box box;  ///< of the leaf
    std::vector<expr::Piece> pieces;
  };
  void AddReads(const std::vector<expr::Piece>& pieces, Task& task, std::vector<Taken>& reads, std::vector<Taken>& dequantized);
  void AddDequantize(const expr::Node& node, std::pair<std::int32_t, std::int32_t> chunks, const Box& box, Task& task,
                     std::vector<Taken>& reads);
  void SortReads(Task& task, std::vector<Taken>& reads) const;
  [[nodiscard]] static QuantizePart PartOf(const Job& job);
  std::vector<Place> AddOutputs(const Job& job, const Box& tile, Task& task);

  const Catalog* source_;
  const Catalog* target_;
  // Made when first asked for, but not each on the heap: that would leave holes between the tasks, which live longer.
  std::vector<std::optional<ChunkIndex>> source_index_;
  std::vector<std::optional<ChunkIndex>> target_index_;
  std::map<DequantizeKey, Dequantized> dequantized_;
};

/// Where the first byte of a read lies in its file, counted in the chunk's elements from the start of its bytes. Of an encoded
/// chunk: about as far into its stored bytes as the element is into the chunk.
[[nodiscard]] std::int64_t FileOffset(const Catalog& source, const Read& read);

}  // namespace crossdock::plan
