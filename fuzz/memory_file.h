// SPDX-License-Identifier: Apache-2.0
/// \file  A ReadFile over the bytes a fuzzer gives; a read outside them is an error, as it is for a real file.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "io/storage.h"

namespace crossdock::fuzz {

class MemoryFile : public io::ReadFile {
 public:
  explicit MemoryFile(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  [[nodiscard]] Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size() || static_cast<std::int64_t>(out.size()) > size() - offset) {
      return MakeError(ErrorCode::kCorrupt, "short read").WithPath(path_);
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return OkStatus();
  }
  [[nodiscard]] Result<io::FileInfo> Info() const override {
    io::FileInfo info;
    info.size = size();
    return info;
  }
  void DropCache(std::int64_t, std::int64_t) const override {}
  [[nodiscard]] const std::string& path() const override { return path_; }

 private:
  std::string_view bytes_;
  std::string path_ = "input";
};

}  // namespace crossdock::fuzz
