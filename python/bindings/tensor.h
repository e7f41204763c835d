// SPDX-License-Identifier: Apache-2.0
/// \file  Tensor: memory of the package's own that holds a tensor, row-major, and is handed to others without a copy: by the buffer
/// protocol and by DLPack. Types for which the buffer protocol has no letter (BF16, FP8) appear there as unsigned integers of their
/// bits; DLPack has a code for each.
/// Invariant: the memory is aligned to 64 bytes and lives as long as anything that was made of it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nanobind/ndarray.h>

namespace crossdock::python {

/// How a dtype of safetensors is told to others. `dlpack.lanes` is 0 where DLPack has no code for it.
struct DTypeWords {
  const char* name;
  const char* letter;   ///< of the buffer protocol
  int bytes;            ///< of an element
  nanobind::dlpack::dtype dlpack;
};
/// Null for a dtype whose elements fill no whole bytes.
[[nodiscard]] const DTypeWords* WordsOf(const std::string& dtype);

class Tensor {
 public:
  /// REQUIRES: `words` of the dtype; memory is not set. Throws std::bad_alloc.
  Tensor(const DTypeWords& words, std::vector<std::int64_t> shape);
  [[nodiscard]] std::span<std::byte> memory() const { return {data_.get(), bytes_}; }
  [[nodiscard]] const DTypeWords& words() const { return *words_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }

  /// What Py_buffer points to.
  std::vector<Py_ssize_t> buffer_shape, buffer_strides;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const DTypeWords* words_;
  std::vector<std::int64_t> shape_;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace crossdock::python
