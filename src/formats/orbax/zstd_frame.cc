// SPDX-License-Identifier: Apache-2.0
#include "formats/orbax/zstd_frame.h"

#include <zstd.h>

#include <memory>

namespace crossdock::formats::orbax {
namespace {

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

std::int64_t ZstdBound(std::int64_t bytes) { return static_cast<std::int64_t>(ZSTD_compressBound(static_cast<std::size_t>(bytes))); }

Result<std::string> CompressZstd(std::span<const std::byte> bytes, int level) {
  // One a thread: its tables are larger than many a chunk.
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (context == nullptr) return MakeError(ErrorCode::kIo, "the system gives no memory for a zstd encoder");
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size = ZSTD_compressCCtx(context.get(), out.data(), out.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(size) != 0U) return MakeError(ErrorCode::kIo, "zstd cannot compress a chunk").WithFound(ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

}  // namespace crossdock::formats::orbax
