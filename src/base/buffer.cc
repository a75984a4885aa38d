// Allocation of Buffers: from malloc, on pages of their own from 256 KiB, on huge ones from 4 MiB, or in the slab of their thread.
#include "swordfish/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

#include "base/buffer_slab.h"

namespace swordfish {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20, kOwnPages = std::size_t{256} << 10;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kWatched = true;  // AddressSanitizer knows the ends of malloc's memory only
#elif defined(__clang__)
constexpr bool kWatched = __has_feature(address_sanitizer);
#else
constexpr bool kWatched = false;
#endif

thread_local BufferSlab* current_slab = nullptr;

// Pages that go back when the last holder is gone. malloc would keep them: what threads by turns allocate and free leaves holes in
// each thread's arena, 1.4 GiB of them in a load with 16 threads (MEASURED.md, Loading).
std::shared_ptr<std::byte> map_pages(std::size_t size) {
  const bool huge = size >= BufferSlab::largest;
  if (size > static_cast<std::size_t>(-1) - 2 * kHugePage) throw std::bad_alloc();
  const std::size_t mapped = size + (huge ? kHugePage : 0);
  void* const memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::byte* data = static_cast<std::byte*>(memory);
  if (huge) {
    data += -reinterpret_cast<std::uintptr_t>(data) % kHugePage;
    // Whole huge pages only: the tail stays on small pages. Advice may fail where the kernel has none; the memory is good anyway.
    ::madvise(data, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return {data, [memory, mapped](std::byte*) { ::munmap(memory, mapped); }};
}

std::byte* allocate(std::size_t size) {
  void* memory = nullptr;  // not from aligned_alloc(): that wants a multiple of the alignment, and sanitizers insist on it
  if (size > static_cast<std::size_t>(-1) - Buffer::alignment) throw std::bad_alloc();
  size = (size + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment;
  if (posix_memalign(&memory, Buffer::alignment, size) != 0) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

}  // namespace

Buffer::Buffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  std::shared_ptr<std::byte> held = current_slab != nullptr ? current_slab->take(size) : nullptr;
  if (!held && size >= kOwnPages && !kWatched) held = map_pages(size);
  std::byte* const data = held ? held.get() : allocate(size);
  data_ = std::unique_ptr<std::byte[], Free>(data, Free{std::move(held)});
}

std::shared_ptr<std::byte> BufferSlab::take(std::size_t size) {
  if (!fixed_ && size >= largest) return nullptr;
  size = (size + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment;
  if (size > size_ - used_) {
    if (fixed_) return nullptr;
    slab_ = map_pages(slab_bytes);
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
