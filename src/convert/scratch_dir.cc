// SPDX-License-Identifier: Apache-2.0
#include "convert/scratch_dir.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

namespace crossdock::convert {

ScratchDir::~ScratchDir() {
  if (path_.empty()) return;
  (void)io::RemoveTree(storage_, path_);
  std::error_code gone;
  std::filesystem::remove(path_, gone);  // made outside of a storage that is not the file system
}

Status ScratchDir::Make() {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "crossdock-XXXXXX").string();
  if (error || ::mkdtemp(name.data()) == nullptr) {
    return MakeError(ErrorCode::kIo, "no directory for temporary files could be made").WithPath(name).WithHint("name one in TMPDIR");
  }
  path_ = name;
  return OkStatus();
}

bool HoldsEncoded(const Catalog& catalog) {
  return std::ranges::any_of(catalog.entries, [](const Entry& entry) {
    return std::ranges::any_of(entry.chunks, [](const Chunk& chunk) { return chunk.encoding == ChunkEncoding::kEncoded; });
  });
}

}  // namespace crossdock::convert
