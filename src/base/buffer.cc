// Allocation of Buffers: 64-byte aligned, on huge pages from 4 MiB, or in a slab that its thread fills.
#include "swordfish/buffer.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "base/buffer_slab.h"

namespace swordfish {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

thread_local BufferSlab* current_slab = nullptr;

std::byte* allocate(std::size_t size, std::size_t align) {
  if (size > static_cast<std::size_t>(-1) - align) throw std::bad_alloc();
  void* memory = nullptr;  // not from aligned_alloc(): that wants a multiple of the alignment, and sanitizers insist on it
  if (posix_memalign(&memory, align, (size + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment) != 0)
    throw std::bad_alloc();
  auto* const data = static_cast<std::byte*>(memory);
  // Whole huge pages only: the tail stays on small pages. Advice may fail where the kernel has none; the memory is good anyway.
  if (align == kHugePage) madvise(data, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

}  // namespace

Buffer::Buffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  if (std::shared_ptr<std::byte> taken = current_slab != nullptr ? current_slab->take(size) : nullptr) {
    std::byte* const data = taken.get();
    data_ = std::unique_ptr<std::byte[], Free>(data, Free{std::move(taken)});
  } else {
    data_.reset(allocate(size, size >= BufferSlab::largest ? kHugePage : alignment));
  }
}

std::shared_ptr<std::byte> BufferSlab::take(std::size_t size) {
  if (!fixed_ && size >= largest) return nullptr;
  size = (size + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment;
  if (size > size_ - used_) {
    if (fixed_) return nullptr;
    slab_ = {allocate(slab_bytes, kHugePage), [](std::byte* p) { std::free(p); }};
    size_ = slab_bytes;
    used_ = 0;
  }
  std::shared_ptr<std::byte> taken(slab_, slab_.get() + used_);
  used_ += size;
  return taken;
}

SlabScope::SlabScope(BufferSlab& slab) : before_(current_slab) { current_slab = &slab; }
SlabScope::~SlabScope() { current_slab = before_; }

}  // namespace swordfish
