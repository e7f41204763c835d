// SPDX-License-Identifier: Apache-2.0
/// \file  A checkpoint in memory for the tests of verify: one raw file, hub tensors over it, a reader that finds them.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "io/memory_storage.h"
#include "result_matchers.h"
#include "verify/verify.h"

namespace crossdock::verify {

class RawReader final : public formats::CheckpointReader {
 public:
  Catalog catalog_;
  const Catalog& catalog() const override { return catalog_; }
  Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    return catalog_.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)].bytes;
  }
  Result<Value> LoadObject(const ObjectRef&) const override {
    return MakeError(ErrorCode::kUnsupported, "no objects here");
  }
};

class Checkpoint {
 public:
  Checkpoint() {
    reader_.catalog_.root = "/c";
    reader_.catalog_.files.push_back({"data", {}});
  }
  /// Stores elements as one chunk for each box (row-major within the box) and returns the entry's index.
  template <typename T>
  int Store(DType dtype, const Shape& shape, const std::vector<T>& values, std::vector<Box> boxes = {}) {
    if (boxes.empty()) boxes.push_back(Box::Whole(shape));
    Entry entry{"t" + std::to_string(reader_.catalog_.entries.size()), Slot::kParam, dtype, shape, {}};
    const Dims strides = RowMajorStrides(shape);
    for (const Box& box : boxes) {
      Chunk chunk;
      chunk.box = box;
      chunk.file = 0;
      chunk.bytes = {static_cast<std::int64_t>(data_.size()), box.count() * static_cast<std::int64_t>(sizeof(T))};
      for (std::int64_t i = 0; i < box.count(); ++i) {
        std::int64_t rest = i;
        std::int64_t at = 0;
        for (std::size_t d = box.rank(); d-- > 0;) {
          at += (box.offsets[d] + rest % box.sizes[d]) * strides[d];
          rest /= box.sizes[d];
        }
        data_.append(reinterpret_cast<const char*>(&values[static_cast<std::size_t>(at)]), sizeof(T));
      }
      entry.chunks.push_back(chunk);
    }
    reader_.catalog_.entries.push_back(entry);
    return static_cast<int>(reader_.catalog_.entries.size()) - 1;
  }
  void Add(const std::string& name, const expr::Expr& e, Slot slot = Slot::kParam) {
    hub_.tensors.push_back({name, slot, e->dtype, e->shape, e});
  }
  dialects::HubState& hub() { return hub_; }
  Side side(const std::string& label) {
    storage_ = std::make_unique<io::MemoryStorage>();
    EXPECT_THAT(io::MakeDirs(*storage_, "/c"), IsOk());
    EXPECT_THAT(io::WriteSmallFile(*storage_, "/c/data", data_), IsOk());
    return {storage_.get(), &reader_, &hub_, label};
  }

 private:
  RawReader reader_;
  std::string data_;
  dialects::HubState hub_;
  std::unique_ptr<io::MemoryStorage> storage_;
};

}  // namespace crossdock::verify
