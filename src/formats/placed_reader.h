// SPDX-License-Identifier: Apache-2.0
/// \file  PlacedReader: the reader of a format whose catalog says at once where every chunk's bytes lie, and that stores
/// nothing but tensors. Threads: immutable.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "formats/format.h"

namespace crossdock::formats {

class PlacedReader final : public CheckpointReader {
 public:
  /// `what` names the files in messages: "safetensors files".
  PlacedReader(Catalog catalog, std::string what) : catalog_(std::move(catalog)), what_(std::move(what)) {}
  [[nodiscard]] const Catalog& catalog() const override { return catalog_; }
  [[nodiscard]] Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    CROSSDOCK_CHECK(entry >= 0 && static_cast<std::size_t>(entry) < catalog_.entries.size());
    const Entry& e = catalog_.entries[static_cast<std::size_t>(entry)];
    CROSSDOCK_CHECK(chunk >= 0 && static_cast<std::size_t>(chunk) < e.chunks.size());
    return e.chunks[static_cast<std::size_t>(chunk)].bytes;
  }
  [[nodiscard]] Result<Value> LoadObject(const ObjectRef& ref) const override {
    return MakeError(ErrorCode::kUnsupported, what_ + " hold no objects").WithTensor(ref.name);
  }

 private:
  Catalog catalog_;
  std::string what_;
};

}  // namespace crossdock::formats
