// SPDX-License-Identifier: Apache-2.0
/// \file  The evaluator of verify: the bytes of a box of a hub tensor, read and arranged by plain loops.
/// It uses the rules' expressions, as conversion does, but no plan, no executor and none of their kernels, so that a
/// mistake there shows here.
/// Errors: those of reading. Threads: an Evaluator is used by one thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "expr/pull_back.h"
#include "verify/stored_chunks.h"
#include "verify/verify.h"

namespace crossdock::verify {

class Evaluator {
 public:
  /// REQUIRES: `side` outlives the evaluator. Decoded chunks take at most `memory` bytes.
  Evaluator(const Side& side, std::int64_t memory) : side_(side), chunks_(*side.storage, *side.reader, memory) {}

  /// Fills `out` with the elements of `box` in `tensor.dtype`, row-major. A scratch of about the same size is used. The codes and the
  /// scales of a tensor that is quantized are worked out from what goes into it, one at a time (evaluate_fp8.cc).
  [[nodiscard]] Status Evaluate(const dialects::HubTensor& tensor, const Box& box, std::vector<std::byte>& out);

 private:
  [[nodiscard]] Status ReadChunk(std::int32_t entry, std::int32_t chunk, const Box& in_chunk, std::vector<std::byte>& out);
  [[nodiscard]] Status Place(const expr::Piece& piece, const dialects::HubTensor& tensor, const Box& box,
                             std::vector<std::byte>& out);
  /// Fills `out` with a box of a stored tensor, whatever its chunks.
  [[nodiscard]] Status ReadStored(int entry, const Box& box, std::vector<std::byte>& out);
  /// Puts a box of what `node` dequantizes into scratch_, in the node's dtype.
  [[nodiscard]] Status ReadDequantized(const expr::Node& node, const Box& box);
  [[nodiscard]] Status Quantized(const dialects::HubTensor& tensor, const Box& box, std::vector<std::byte>& out);
  [[nodiscard]] Result<float> ScaleOfBlock(const dialects::HubTensor& input, const expr::Fp8Format& fp8, std::int64_t row, std::int64_t col);

  const Side& side_;
  StoredChunks chunks_;
  std::vector<std::byte> scratch_;
  std::vector<std::byte> part_, values_, scales_;  ///< of ReadStored and ReadDequantized
  expr::Expr scaled_;                                             ///< what the block scales are of
  std::map<std::pair<std::int64_t, std::int64_t>, float> block_scales_;  ///< by row and column of the grid
};

/// Cuts a shape into boxes of at most `max_elements` elements that are contiguous in row-major order, in that order.
[[nodiscard]] std::vector<Box> RowMajorTiles(const Shape& shape, std::int64_t max_elements);

}  // namespace crossdock::verify
