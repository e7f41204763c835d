// SPDX-License-Identifier: Apache-2.0
/// \file  common.pt of a checkpoint that is written: counters, `args`, optimizer groups, scheduler.
/// Reference: megatron-core 0.19.2. What each key is for, and what happens without it: docs of the mcore dialect;
/// `args` must carry no_save_rng = True, for without random state a run asks for it otherwise.
/// Groups are matched by value on loading (max_lr, min_lr, wd_mult, ...), so learning rates must be known.
/// Errors: kUsage names the `--set` options that are needed. Threads: functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dialects/dialect.h"

namespace crossdock::dialects::mcore {

/// Megatron's default of --make-vocab-size-divisible-by.
inline constexpr std::int64_t kVocabDivisor = 128;

/// A key of the common state that Megatron does not know: counters that its optimizers have no place for.
inline constexpr const char* kKeptCounters = "crossdock_counters";

struct CommonRequest {
  const HubState* hub = nullptr;
  const TargetOptions* options = nullptr;
  const layout::StageMap* stages = nullptr;
  DType params_dtype = DType::kBF16;
  std::int64_t vocab_size = 0;
  std::int64_t padded_vocab = 0;
  bool with_optimizer = false;
  bool with_muon = false;              ///< the optimizer is Muon and Adam chained, not distributed
  std::int64_t iteration = 0;
};

struct CommonResult {
  Value common;
  Value args;                          ///< the namespace's content
  std::vector<std::string> notices;
};
[[nodiscard]] Result<CommonResult> MakeCommon(const CommonRequest& request);

/// The rows that Megatron makes of a vocabulary (calculate_padded_vocab_size in vocab_utils.py); nothing where the product is no number.
[[nodiscard]] std::optional<std::int64_t> PaddedVocabulary(std::int64_t size, std::int64_t divisor, std::int64_t tp);

/// Whether `rows` are those that Megatron computed for its tensor-parallel size: a run of another size then has other rows. Rows that
/// were given by hand, or that no size explains, are nobody's to change.
[[nodiscard]] bool WereComputed(std::int64_t rows, std::int64_t size, std::int64_t divisor, std::int64_t tp);

/// --make-vocab-size-divisible-by of a target: as asked for, else as the run that wrote the source had it.
[[nodiscard]] std::int64_t VocabDivisorOf(const HubState& hub, const TargetOptions& options);

/// An argparse.Namespace with this content.
[[nodiscard]] Value MakeNamespace(Value values);

}  // namespace crossdock::dialects::mcore
