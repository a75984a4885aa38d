// StagingMemory: what the ring lies in, first touched by a thread of its own while the caller still reads headers.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <thread>

#include "swordfish/buffer.h"

namespace swordfish::io {

inline constexpr std::uint64_t kPage = 4096;  // what O_DIRECT asks of memory, offsets and sizes

class StagingMemory {
 public:
  // `size` rounded up to whole pages. `touch`: by the thread. A quarter of a GiB takes 0.5 s on the build machine (MEASURED.md).
  StagingMemory(std::size_t size, bool touch);
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  std::span<std::byte> pages() { return pages_; }

 private:
  Buffer memory_;
  std::span<std::byte> pages_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace swordfish::io
