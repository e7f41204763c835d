// SPDX-License-Identifier: Apache-2.0
/// \file  The executor works off a plan: read, arrange, write, checksum, within a memory budget, on several threads.
/// It decides nothing: every offset comes from the plan and the placed catalog.
/// Invariant: output bytes do not depend on the number of threads. A source file whose size, mtime or inode is not
/// what the catalog says, at the start or at the end of its reading, is kCorrupt ("changed while it was read").
/// Threads: started here and nowhere else, joined before Execute returns. Cancelling through the stop token gives
/// kCancelled and leaves the staging directory and its journal fit for a resume.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/hash.h"
#include "crossdock/result.h"
#include "execute/chunk_sums.h"
#include "formats/format.h"
#include "io/storage.h"
#include "plan/plan.h"

namespace crossdock::execute {

struct Progress {
  std::int64_t bytes_done = 0;  ///< of output written, moving inside large tensors
  std::int64_t bytes_total = 0;
  std::string current;  ///< name of a target tensor in work
};

struct ExecuteOptions {
  int threads = 1;
  std::int64_t memory = std::int64_t{512} << 20U;
  bool digests = false;                              ///< compute ExecuteReport::digests (receipts)
  bool allow_nonfinite = false;                      ///< else kUnsupported: a value that a cast makes infinite, or is quantized and not finite
  bool cuda = false;                                 ///< quantize on a CUDA device; kUnsupported where there is none
  bool into_existing = false;                        ///< the files are there: another process made them (CreateFiles), or they are buffers; there is no journal, and `frames` are not written
  std::span<const float> amaxes;                     ///< for parts that are quantized: what all processes' Measure gave, the Larger of each
  bool exact_reads = false;                          ///< between runs below 512 bytes too, holes are read along only where they are a 64th of the runs; else there up to 4 KiB
  bool resume = false;                               ///< a journal in the staging directory says which tasks are done
  /// What was asked for, in words without tabs or newlines; the journal keeps them, and another request is told by them.
  std::vector<std::string> request;
  std::function<void(const Progress&)> on_progress;  ///< called from worker threads, one at a time, at most ~10/s
  std::stop_token stop;
  /// Done tasks are made durable and journalled whenever this much was written, or every 5 seconds.
  std::int64_t journal_bytes = std::int64_t{1} << 30U;
};

struct EncodedChunk {
  std::int32_t entry = 0, chunk = 0;
  ByteRange bytes;
};

struct ExecuteReport {
  std::int64_t bytes_read = 0;  ///< what was asked of source files, frames included
  std::int64_t bytes_written = 0;
  std::int64_t peak_buffer_bytes = 0;  ///< of all tasks' buffers together; at most ExecuteOptions::memory
  std::int64_t overflows = 0;          ///< values that a cast made infinite, in the tasks of this run
  std::int64_t nonfinite = 0;          ///< values that were quantized though they are not finite, likewise
  std::int64_t tasks_resumed = 0;      ///< taken over from the journal
  std::vector<std::string> notices;    ///< e.g. that a journal could not be used and the run started over
  std::vector<EncodedChunk> encoded;   ///< where encoded chunks lie; empty where none are
  std::vector<std::int64_t> file_ends; ///< the size of each target file; empty where no chunks are encoded
  std::vector<LoosePiece> loose;       ///< of chunks with a CRC-32 that other processes write parts of: they are not sealed yet
  std::vector<Digest> digests;         ///< a target entry each; over the row-major bytes of its chunks in order
};

/// kUsage when the staging directory has the journal of another plan: it says which words of the request differ. For a
/// caller that would not touch the directory then; Execute looks itself too.
[[nodiscard]] Status CheckSameRun(io::Storage& storage, const std::string& staging_dir, const plan::Plan& plan,
                                  const std::vector<std::string>& request);

/// With `resume`, a journal of the same plan is taken over; one of another plan is kUsage; an unreadable one, or one
/// whose files are gone, means starting over with a notice.
/// Encoded chunks are appended in the order of the plan (encoded_places.h): their bytes too are the same for every number of threads.
/// Creates the placement's files in `staging_dir`, works off the plan, seals every chunk and syncs every file.
/// `frames` are the placement's own, given away so that they need not be held while the data moves: a deep model has tens
/// of thousands. Metadata files and the commit are the caller's.
[[nodiscard]] Result<ExecuteReport> Execute(const plan::Plan& plan, io::Storage& source_storage,
                                            const formats::CheckpointReader& source, io::Storage& target_storage,
                                            const std::string& staging_dir, const formats::Placement& placement,
                                            std::vector<formats::Frame> frames, const formats::CheckpointWriter& writer,
                                            const ExecuteOptions& options);

/// Where several processes write into one staging directory: one makes all files at their full size, with their frames, durable.
/// The others then Execute their shares `into_existing`.
[[nodiscard]] Status CreateFiles(io::Storage& storage, const std::string& staging_dir, const formats::Placement& placement);

/// Seals and syncs the chunks that several processes wrote, from the pieces of all of them. kIo for pieces that do not make up whole chunks.
[[nodiscard]] Status SealLoose(io::Storage& storage, const std::string& staging_dir, const formats::Placement& placement,
                               const formats::CheckpointWriter& writer, std::vector<LoosePiece> pieces);

/// Of a share with parts that are quantized: the largest value that they have of each of `count` blocks, 0 of none. Only reads.
[[nodiscard]] Result<std::vector<float>> Measure(const plan::Plan& plan, io::Storage& source_storage, const formats::CheckpointReader& source,
                                                 const formats::Placement& placement, const formats::CheckpointWriter& writer,
                                                 std::int64_t count, const ExecuteOptions& options);

/// Writes what a run learned of encoded chunks into the placed catalog, which WriteMetadata takes: their ranges, and the sizes of the files.
void TakePlaces(const ExecuteReport& report, Catalog* placed);

}  // namespace crossdock::execute
