// SPDX-License-Identifier: Apache-2.0
/// \file  ScratchDir: a directory for temporary files of one call whose target is memory; gone with it. Encoded chunks for which the
/// memory has no room are decoded into it.
/// Errors: kIo. Threads: one.
#pragma once

#include <string>

#include "crossdock/result.h"
#include "io/storage.h"
#include "tensor/catalog.h"

namespace crossdock::convert {

class ScratchDir {
 public:
  /// `storage` outlives this.
  explicit ScratchDir(io::Storage& storage) : storage_(storage) {}
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir();
  /// Below TMPDIR.
  [[nodiscard]] Status Make();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  io::Storage& storage_;
  std::string path_;
};

/// Whether reading it may need one.
[[nodiscard]] bool HoldsEncoded(const Catalog& catalog);

}  // namespace crossdock::convert
