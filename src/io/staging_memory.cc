// Touches without writing: reads may land in the memory meanwhile.
#include "io/staging_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <system_error>

namespace swordfish::io {

StagingMemory::StagingMemory(std::size_t size, bool touch) : memory_(size + 2 * kPage) {
  const std::size_t skip = (kPage - reinterpret_cast<std::uintptr_t>(memory_.data()) % kPage) % kPage;
  pages_ = {memory_.data() + skip, (size + kPage - 1) / kPage * kPage};
#ifdef MADV_POPULATE_WRITE
  constexpr std::size_t kStep = std::size_t{4} << 20;
  if (!touch) return;
  try {
    thread_ = std::thread([this, kStep] {
      for (std::size_t at = 0; at < pages_.size() && !stop_; at += kStep) {
        const std::span<std::byte> step = pages_.subspan(at, std::min(kStep, pages_.size() - at));
        if (madvise(step.data(), step.size(), MADV_POPULATE_WRITE) != 0) return;  // a kernel before 5.14
      }
    });
  } catch (const std::system_error&) {  // no thread: the pages are touched when they are used
  }
#endif
}

StagingMemory::~StagingMemory() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace swordfish::io
