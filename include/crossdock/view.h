// SPDX-License-Identifier: Apache-2.0
/// \file  A checkpoint of any format by its Hugging Face names, read lazily: names, shapes and dtypes at once, values when they are asked
/// for, and of them only the byte ranges that hold the box asked for.
/// What is seen is what `convert --to hf` with the same options would write, value for value; a Hugging Face directory without such options
/// is shown as it is stored, whatever its family. Of a pair of tied tensors that is stored twice the two are not compared.
/// Errors: as of convert; kUsage for a tensor that is not there or a box that does not fit. Threads: a View is immutable; Read may be called
/// from several threads at once. No call starts a thread that outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossdock/options.h"
#include "crossdock/result.h"

namespace crossdock {

struct ViewTensor {
  std::string name;
  std::string dtype;                 ///< as safetensors spells it: "BF16", "F8_E4M3"
  std::vector<std::int64_t> shape;   ///< slowest axis first
  std::int64_t bytes = 0;
};

/// A region of a tensor, an offset and a size an axis.
struct ViewBox {
  std::vector<std::int64_t> offsets, sizes;
};

class View {
 public:
  virtual ~View() = default;
  /// Reads tables, no tensors. Of the options those count that say what the source is and how parameters are written: `source`, `from`,
  /// `step`, `family`, `rules`, `hf_template`, `dtype`, `keep_dtype`, `experts`, `mtp`, `params_from`, `scan_axis`, `set_args`, `allow`; `memory` and
  /// `threads` bound each Read.
  [[nodiscard]] static Result<std::unique_ptr<View>> Open(const ConvertOptions& options, const Hooks& hooks = {});

  /// Sorted by name.
  [[nodiscard]] virtual const std::vector<ViewTensor>& tensors() const = 0;
  /// Indices of tensors() in the order in which their first bytes lie in the checkpoint's files.
  [[nodiscard]] virtual std::vector<std::size_t> InFileOrder() const = 0;
  /// What stands in the headers of a Hugging Face file, {"format": "pt"}.
  [[nodiscard]] virtual const std::vector<std::pair<std::string, std::string>>& metadata() const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& notices() const = 0;
  /// The index of a tensor; kUsage with the nearest name when there is none.
  [[nodiscard]] virtual Result<std::size_t> Find(std::string_view name) const = 0;
  /// Fills `out`, row-major, with a box of tensors()[index]; gives how many bytes were read of the checkpoint's files.
  /// REQUIRES: `index` is one of tensors(). kUsage when `out` has another size than the box.
  [[nodiscard]] virtual Result<std::int64_t> Read(std::size_t index, const ViewBox& box, std::span<std::byte> out, const Hooks& hooks = {}) const = 0;
};

}  // namespace crossdock
