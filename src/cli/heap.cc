// SPDX-License-Identifier: Apache-2.0
/// Reference: mallopt(3) and madvise(2) of Linux; glibc has this as its tunable `hugetlb`, which only the environment can set.
#include "cli/heap.h"

#include <cstdint>
#include <cstdlib>  // says which C library this is

#if defined(__GLIBC__)
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace crossdock::cli {

void UseLargePages() {
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20U;
  constexpr int kReserve = 256 << 20;
  constexpr int kBlock = 32 << 20;  // the largest that M_MMAP_THRESHOLD takes
  mallopt(M_MMAP_THRESHOLD, kBlock);
  mallopt(M_TRIM_THRESHOLD, 4 * kReserve);           // else the first free gives the reserve back
  mallopt(M_TOP_PAD, kReserve);
  void* probe = std::malloc(std::size_t{1} << 20U);  // more than the first piece of a heap has: it grows, by the reserve besides
  mallopt(M_TOP_PAD, 128 << 10);                     // once is enough
  const auto begin = (reinterpret_cast<std::uintptr_t>(probe) + kPage - 1) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0)) / kPage * kPage;
  // A heap that could not grow in place lies elsewhere, and then these are no two ends of one range.
  if (probe != nullptr && begin < end && end - begin <= 2 * static_cast<std::uintptr_t>(kReserve)) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
  std::free(probe);
#endif
}

}  // namespace crossdock::cli
