// Allocation of Buffers: 64-byte aligned, or on huge pages from 4 MiB.
#include "swordfish/buffer.h"

#include <sys/mman.h>

#include <new>

namespace swordfish {
namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = 2 * kHugePage;
}  // namespace

Buffer::Buffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  const std::size_t align = size >= kHugeFrom ? kHugePage : alignment;
  if (size > static_cast<std::size_t>(-1) - align) throw std::bad_alloc();
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(align, (size + alignment - 1) / alignment * alignment)));
  if (!data_) throw std::bad_alloc();
  // Whole huge pages only: the tail stays on small pages. Advice may fail where the kernel has none; the memory is good anyway.
  if (align == kHugePage) madvise(data_.get(), size / kHugePage * kHugePage, MADV_HUGEPAGE);
}

}  // namespace swordfish
