// SPDX-License-Identifier: Apache-2.0
/// \file  Saving from inside a training loop: every rank writes what its own tensors feed straight into the final files. Nothing is
/// gathered; where a quantization block is cut between ranks they tell each other its largest value.
/// To `hf`, a Hugging Face directory: what comes out is, byte for byte, what `crossdock convert` makes of the run's legacy checkpoint
/// (`--to hf --hf-template REFERENCE` and the same options).
/// To `megatron`, an iteration of Megatron-Core's torch_dist with the optimizer's state, from which the run resumes: its tensor files
/// are, byte for byte, what `--to megatron` makes of the run's legacy checkpoint in the run's layout; common.pt is the trainer's own.
/// A save is one commit: rank 0 makes a staging directory beside the target, all write and sync, rank 0 adds config.json, the index and
/// the reference's other files and renames. Until then the target is untouched; what a killed save left is cleared by the next.
/// Errors: those of convert and of Comm. Each collective step ends with all ranks well or with the same error on all, which names the
/// rank. Where the connection itself fails a step can end differently on each rank; when that happens in the last one the result may be in
/// place though some rank has an error. The next Save of all ranks begins together again.
/// What is replaced is an earlier save of the same kind; kUsage for any other checkpoint at the target, and for a Hugging Face directory called
/// `iter_...` that would lie among checkpoints of Megatron.
/// Threads: an Exporter by one thread at a time. With `snapshot` one thread works on after Save returned, and joins in Wait,
/// Flush, or the Exporter's end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "crossdock/comm.h"
#include "crossdock/live.h"
#include "crossdock/options.h"
#include "crossdock/result.h"

namespace crossdock {

struct ExportOptions {
  std::string to = "hf";                                      ///< "hf" or "megatron"
  /// Of `megatron`: the names of the optimizer's tensors that this rank hands over, float32: `optimizer.<state>.<parameter>`, where state is param (the
  /// master copy), exp_avg or exp_avg_sq and the parameter has its name in the run; of a flat part, elements of the row-major tensor,
  /// `[begin:end]` stands behind. Of ranks that hold copies of the model each names what it holds.
  std::vector<std::string> states;
  bool distributed_optimizer = false;                         ///< of `megatron`: the state is read by Megatron's distributed optimizer, which calls it otherwise
  /// Where to. Of `megatron` the root of the run, in which `iter_%07d` and the tracker are made. Of `hf` a path with `{step}` or `{rollout_id}`, also `{step:07d}`. Without a field `iter_%07d` is appended, or with `overwrite`
  /// the one directory is replaced each time.
  std::string dst;
  bool overwrite = false;
  std::string reference;                                      ///< a Hugging Face directory: config, order of tensors, side files; weights may be absent
  std::optional<std::string> family, rules;
  LayoutOptions layout;
  RankPlace place;
  std::optional<std::string> dtype;                           ///< "bf16", "fp16", "fp32"; absent: as the tensors are
  std::vector<std::string> keep_dtype;                        ///< as of convert
  Fp8Request fp8;                                             ///< as of convert; on the CPU
  std::int64_t max_shard_bytes = 5'000'000'000;
  /// Layers of multi-token prediction. "none": the run has none; "template": it has none, and they are the reference's; "keep", "drop": it
  /// holds those of the reference, which is kUnsupported where the reference has any.
  std::string mtp = "keep";
  bool local_layers = false;                                  ///< see LoadOptions
  bool grouped_experts = true;
  std::optional<std::int64_t> vocab_divisor, padded_vocab;
  std::vector<std::pair<std::string, std::string>> set_args;
  /// Arguments of the run, by Megatron's names, each a JSON value: what convert would find in the run's checkpoint and carry into config.json
  /// (`moe_aux_loss_coeff`). Where they are not given the reference's values stay. kUsage for what is no JSON.
  std::vector<std::pair<std::string, std::string>> run_args;
  std::vector<std::string> allow;
  std::int64_t memory = std::int64_t{512} << 20U;             ///< bytes for buffers of this rank, beside a snapshot
  int threads = 0;                                            ///< 0: min(cores, 8)
  bool snapshot = false;                                      ///< Save copies the tensors and returns; a thread writes them
};

struct ExportReport {
  std::string path;                ///< the directory that was put in place
  std::int64_t step = 0;
  std::int64_t files = 0;
  std::int64_t bytes = 0;          ///< of tensors, all ranks
  std::int64_t own_bytes = 0;      ///< of them by this rank
  std::int64_t copied_bytes = 0;   ///< of this rank's snapshot
  double seconds = 0;              ///< from Save to the commit
};

/// One save of one rank.
class ExportJob {
 public:
  virtual ~ExportJob() = default;
  [[nodiscard]] virtual bool Done() const = 0;
  /// Waits for the end; the same answer each time. kIo when it is not there after so many seconds; negative: waits for ever;
  /// kUsage for NaN.
  /// kCancelled when `stop` ends the waiting; the save goes on.
  [[nodiscard]] virtual Result<ExportReport> Wait(double seconds = -1, std::stop_token stop = {}) = 0;
};

class Exporter {
 public:
  virtual ~Exporter() = default;  ///< waits for a job that still runs
  /// Looks at the options alone; no collective step.
  [[nodiscard]] static Result<std::unique_ptr<Exporter>> Make(const ExportOptions& options, std::shared_ptr<Comm> comm);

  /// Of the calls that follow, up to the next Heed: once `stop` says so they end with kCancelled, in a few seconds also where they wait for
  /// other ranks (Comm::Heed) or for an earlier job. A job in the background goes on.
  virtual void Heed(std::stop_token stop) = 0;

  /// Collective. All that can be known before there are tensors: the reference, the plan and that all ranks make the same one, room for it,
  /// and that all ranks see the same directory.
  [[nodiscard]] virtual Status Validate() = 0;

  /// What this rank is to hand over, by name; known after Validate. Types are the reference's; a save takes what the tensors have.
  [[nodiscard]] virtual const std::vector<LiveTensor>& tensors() const = 0;

  /// Collective. Begins when an earlier job has ended. Returns when the caller may change its tensors: committed, or with `snapshot`
  /// copied. The tensors must be this rank's, all of them; kUsage names what is missing or has another shape. An error of an earlier job
  /// is that job's. With `snapshot` hooks are called, and heeded, after Save has returned.
  /// `common`, of `megatron` and on rank 0: the bytes of common.pt, as torch.save writes it; needed with an optimizer's state, else
  /// made from the reference.
  [[nodiscard]] virtual Result<std::shared_ptr<ExportJob>> Save(std::int64_t step, std::span<const LiveBuffer> tensors, const Hooks& hooks = {},
                                                                const std::string& common = {}) = 0;

  /// Collective, in the place of Save on a rank that cannot hand over its tensors: all ranks get this error.
  [[nodiscard]] virtual Status Refuse(std::int64_t step, const Error& why) = 0;

  /// Waits for the job that still runs; its error is returned here too. kIo when it is not there after so many seconds.
  [[nodiscard]] virtual Status Flush(double seconds = 1800, std::stop_token stop = {}) = 0;
};

/// The directory that a template means for a step. kUsage for a field that is none.
[[nodiscard]] Result<std::string> ExportPath(const std::string& dst, bool overwrite, std::int64_t step);

}  // namespace crossdock
