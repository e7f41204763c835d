// SPDX-License-Identifier: Apache-2.0
/// \file  A reader whose chunks are stored encoded in the simplest way: every byte is followed by its complement.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/format.h"

namespace crossdock::execute {

class EncodedReader final : public formats::CheckpointReader {
 public:
  explicit EncodedReader(Catalog catalog) : catalog_(std::move(catalog)) {}
  static std::string Encode(const std::string& bytes) {
    std::string out;
    for (const char c : bytes) (out += c) += static_cast<char>(~c);
    return out;
  }
  const Catalog& catalog() const override { return catalog_; }
  Result<ByteRange> Locate(std::int32_t entry, std::int32_t chunk) const override {
    const Chunk& c = catalog_.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)];
    return c.encoding == ChunkEncoding::kEncoded ? ByteRange{0, c.bytes.length / 2} : c.bytes;
  }
  Result<Value> LoadObject(const ObjectRef&) const override { return MakeError(ErrorCode::kUnsupported, "no objects here"); }
  Result<std::unique_ptr<formats::ElementStream>> OpenEncoded(std::int32_t entry, std::int32_t chunk, const io::ReadFile& file) const override {
    ++opened_;
    if (before_open) before_open(chunk);
    const Chunk& c = catalog_.entries[static_cast<std::size_t>(entry)].chunks[static_cast<std::size_t>(chunk)];
    return std::unique_ptr<formats::ElementStream>(std::make_unique<Stream>(file, c.bytes.offset));
  }
  [[nodiscard]] int opened() const { return opened_; }
  std::function<void(std::int32_t chunk)> before_open;  ///< called with the number of each chunk that is opened

 private:
  class Stream final : public formats::ElementStream {
   public:
    Stream(const io::ReadFile& file, std::int64_t at) : file_(file), at_(at) {}
    Status Read(std::span<std::byte> out) override {
      std::vector<std::byte> pairs(2 * out.size());
      CROSSDOCK_RETURN_IF_ERROR(file_.ReadAt(at_, pairs));
      at_ += static_cast<std::int64_t>(pairs.size());
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (pairs[2 * i] != ~pairs[2 * i + 1]) return MakeError(ErrorCode::kCorrupt, "a byte and its complement differ");
        out[i] = pairs[2 * i];
      }
      return OkStatus();
    }

   private:
    const io::ReadFile& file_;
    std::int64_t at_;
  };
  Catalog catalog_;
  mutable std::atomic<int> opened_ = 0;
};

}  // namespace crossdock::execute
