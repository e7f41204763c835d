// SPDX-License-Identifier: Apache-2.0
/// \file  Compares two checkpoints of any formats by hub names. Shares neither plan nor executor with conversion, so
/// that it cannot share their mistakes: it walks one side's hub tensors in order and pulls the boxes of both sides
/// through their expressions with its own scalar evaluator.
/// Memory: two tiles and the counters, whatever the model's size; where chunks are stored encoded, also decoded ones, up to half
/// of Options::memory.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "crossdock/result.h"
#include "dialects/dialect.h"
#include "formats/format.h"
#include "io/storage.h"

namespace crossdock::verify {

struct Side {
  io::Storage* storage = nullptr;
  const formats::CheckpointReader* reader = nullptr;
  const dialects::HubState* hub = nullptr;
  std::string label;                       ///< path as the user gave it
};

struct Counts {
  std::int64_t num_baseline = 0, num_roundtrip = 0, num_common = 0;
  std::int64_t num_bit_identical = 0, num_exact_matches = 0, num_close_matches = 0;
  std::int64_t num_different = 0;          ///< that do not pass in the mode asked for; as many as mismatched_keys
};
struct Difference {
  std::string name;                        ///< hub name, with its slot when not a param
  double max_abs = 0;
  std::int64_t first_index = -1;           ///< row-major element
  std::int64_t incomparable = 0;           ///< differing elements with a NaN or an infinity; such tensors rank first
  Shape shape;                             ///< of the tensor, to say where first_index lies
};
struct ConfigDifference {
  std::string key, a, b;
  int consequence = 0;                     ///< 2 changes the model's output, 1 may, 0 informational
};
/// cli.md "The comparison report".
struct Comparison {
  bool passed = false;
  Counts total;
  std::vector<std::pair<std::string, Counts>> slots;      ///< by slot name
  std::vector<std::string> missing_keys, extra_keys, shape_mismatches, mismatched_keys, dtype_mismatches, nonfinite;
  std::vector<std::string> counter_differences;           ///< step, counts, consumed samples
  double max_abs_diff = 0, mean_abs_diff = 0;
  std::vector<Difference> worst;                          ///< at most ten
  std::vector<ConfigDifference> config_differences;       ///< by consequence, descending
};
enum class Exact { kBit, kClose };
struct Options {
  Exact exact = Exact::kBit;
  bool params_only = false;                ///< one side cannot hold optimizer state (HF)
  std::int64_t memory = std::int64_t{512} << 20U;
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;
  std::stop_token stop;
};

[[nodiscard]] Result<Comparison> Compare(const Side& a, const Side& b, const Options& options);
/// The JSON object of cli.md, all fields present.
[[nodiscard]] std::string ToJsonReport(const Comparison& comparison);

/// The elements of `box` of a hub tensor, row-major, evaluated one element at a time. For small boxes and tests.
[[nodiscard]] Result<std::string> EvaluateBox(const Side& side, const dialects::HubTensor& tensor, const Box& box);

}  // namespace crossdock::verify
