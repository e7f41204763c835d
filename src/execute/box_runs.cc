// SPDX-License-Identifier: Apache-2.0
#include "execute/box_runs.h"

namespace crossdock::execute {

BoxRuns::BoxRuns(const Shape& chunk, const Box& box, std::int64_t element) {
  if (box.empty()) return;
  Dims strides = Dims::Filled(chunk.size(), element);
  for (std::size_t i = chunk.size(); i-- > 1;) strides[i - 1] = strides[i] * chunk[i];
  std::size_t outer = chunk.size();
  length_ = element;
  while (outer > 0) {
    --outer;
    length_ = strides[outer] * box.sizes[outer];
    if (box.sizes[outer] != chunk[outer]) break;
  }
  left_ = 1;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    offset_ += box.offsets[i] * strides[i];
    if (i >= outer) continue;
    counts_.push_back(box.sizes[i]);
    strides_.push_back(strides[i]);
    at_.push_back(0);
    left_ *= box.sizes[i];
  }
}

void BoxRuns::Next() {
  if (--left_ == 0) return;
  for (std::size_t i = counts_.size(); i-- > 0;) {
    offset_ += strides_[i];
    if (++at_[i] < counts_[i]) return;
    offset_ -= strides_[i] * counts_[i];
    at_[i] = 0;
  }
}

std::int64_t BoxRuns::reach() const {
  if (done()) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) last += (counts_[i] - 1) * strides_[i];
  return last + length_;
}

}  // namespace crossdock::execute
