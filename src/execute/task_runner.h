// SPDX-License-Identifier: Apache-2.0
/// \file  TaskRunner: one worker's way through one task: read, arrange, quantize, write, checksum, seal.
/// Outputs made of long unchanged runs are streamed through a slice that stays in the cache (segments.h); for the
/// others the task's reads are put into its buffer, moved, and written from there. Chunks that are encoded are made whole in the buffer,
/// encoded, and written once the tasks before have told their sizes; the buffer is given back before that wait.
/// Threads: one TaskRunner a worker; what it shares (SharedWork) is safe to use from all.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "execute/chunk_sums.h"
#include "execute/encoded_places.h"
#include "execute/fp8_step.h"
#include "execute/journal.h"
#include "execute/memory_budget.h"
#include "execute/progress.h"
#include "execute/segments.h"
#include "execute/source_files.h"
#include "execute/target_files.h"
#include "formats/format.h"
#include "plan/plan.h"

namespace crossdock::execute {

/// Bytes read, checksummed and written at a time: they stay in the second cache. A worker holds two of them beside the
/// buffer of its task, one to stream through and one to read over holes.
inline constexpr std::int64_t kSliceBytes = std::int64_t{1} << 20U;

/// Bytes copied inside the system at a time, where no checksum is owed: between two looks at whether the user wants to stop.
inline constexpr std::int64_t kCopyBytes = std::int64_t{8} << 20U;

/// What all workers of a run use together.
struct SharedWork {
  const plan::Plan& plan;
  const formats::CheckpointReader& source;
  const formats::CheckpointWriter& writer;
  const formats::Placement& placement;
  SourceFiles& sources;
  TargetFiles& targets;
  EncodedPlaces& places;
  ChunkSums& sums;
  ProgressMeter& progress;
  BufferPool& buffers;
  std::function<bool()> stopped;
  const Fp8Kernels& fp8;
  bool allow_nonfinite;
  bool exact_reads;                      ///< see ExecuteOptions
  std::atomic<std::int64_t>& overflows;  ///< values that became infinite, where that is allowed
  std::atomic<std::int64_t>& nonfinite;  ///< values to be quantized that are not finite, where that is allowed
  std::span<const float> amaxes;         ///< of tensors that are quantized in parts, over all parts
};

/// Elements of a target tensor that are NaN or infinite.
struct NonFiniteFound {
  std::int64_t count = 0;
  std::int64_t first = -1;  ///< row-major, in the whole tensor
};

class TaskRunner {
 public:
  [[nodiscard]] static Result<TaskRunner> Create(const SharedWork& shared);
  /// The checksums of the pieces written, for the journal. kCancelled when `stopped` says so.
  [[nodiscard]] Result<DoneTask> Run(std::int64_t index);

  /// The largest values of a part that is to be quantized, of Fp8Kernels::BlocksOf; writes nothing. REQUIRES: so many zeros.
  [[nodiscard]] Status Measure(std::int64_t index, std::span<float> amaxes);

  /// True when the last Run or Measure refused values that are not finite.
  [[nodiscard]] bool refused_nonfinite() const { return refused_nonfinite_; }
  /// How many of them a task that quantizes meets; writes nothing. For the message, once a run has failed.
  [[nodiscard]] Result<NonFiniteFound> CountNonFinite(std::int64_t index);

 private:
  TaskRunner(const SharedWork& shared, Buffer slice, Buffer scratch)
      : shared_(&shared), slice_(std::move(slice)), scratch_(std::move(scratch)) {}
  [[nodiscard]] Result<std::vector<ReadPlace>> Places(const plan::Task& task) const;
  /// Reads what outputs that are not streamed (or the scratch) need, and moves it there.
  [[nodiscard]] Status Load(const plan::Task& task, std::span<const ReadPlace> places, const std::vector<bool>& streamed);
  /// The same for a task that quantizes.
  [[nodiscard]] Status LoadScratch(const plan::Task& task);
  [[nodiscard]] Result<NonFiniteFound> Quantize(const plan::Task& task);
  [[nodiscard]] Status RunPart(const plan::Task& task, DoneTask& done);
  [[nodiscard]] Status RunBands(const plan::Task& task, DoneTask& done);
  [[nodiscard]] Result<float> AmaxOfBands(const plan::Task& task, NonFiniteFound* found);
  [[nodiscard]] Status CheckFinite(const plan::Task& task, const NonFiniteFound& found);
  [[nodiscard]] Status RunDequantize(const plan::Task& task);
  [[nodiscard]] Status ReadAhead(const ReadPlace& place);
  [[nodiscard]] Status ReadBox(const plan::Read& read, const ReadPlace& place);
  [[nodiscard]] Status Stream(const plan::Output& output, std::span<const Segment> segments, DoneTask& done);
  [[nodiscard]] Result<std::int64_t> Copy(const plan::Output& output, std::int64_t offset, std::int64_t most, std::span<const Segment> segments, std::size_t& at, std::int64_t& used);
  [[nodiscard]] Status FillSlice(std::span<const Segment> segments, std::size_t& at, std::int64_t& used,
                                 std::span<std::byte> slice);
  [[nodiscard]] Result<std::string> EncodeOutput(const plan::Output& output, DoneTask& done);
  [[nodiscard]] Status WriteEncoded(const plan::Task& task, std::span<const std::string> encoded, DoneTask& done);
  [[nodiscard]] Status WriteBuffer(const plan::Output& output, DoneTask& done);
  [[nodiscard]] Status WriteSlice(const plan::Output& output, std::int64_t chunk_offset,
                                  std::span<const std::byte> bytes, PieceSum& sum);
  [[nodiscard]] Status CheckOverflows(const plan::Task& task, const plan::Move& move, DType to, std::int64_t overflows) const;
  [[nodiscard]] Status CheckStopped() const;

  const SharedWork* shared_;
  bool copies_ = true;        ///< until the system says that it cannot
  BufferPool::Lease buffer_;  ///< while a task runs that cannot be streamed
  bool read_again_ = false;   ///< what is read now will be read once more: it stays in the page cache
  bool refused_nonfinite_ = false;
  Buffer slice_;
  Buffer scratch_;
};

/// The refusal of values that are not finite and were to be quantized.
[[nodiscard]] Error NonFiniteError(const SharedWork& shared, const plan::Task& task, const NonFiniteFound& found);

/// How many checksums a done task has: one for each contiguous run of its outputs.
[[nodiscard]] std::size_t CountPieces(const SharedWork& shared, std::int64_t task);

/// Hands the checksums of a done task to ChunkSums and writes the frames of each chunk that is complete with it.
[[nodiscard]] Status JoinSums(const SharedWork& shared, const DoneTask& done);

}  // namespace crossdock::execute
