// SlabScope: while it lives, the Buffers that this thread makes lie side by side on huge pages.
//
// For results that are made by the thousand and kept, as a loader does: a Buffer below 4 MiB has small pages of its own, and first
// touching those is what such a load costs most (1 to 1.9 s of CPU a GiB on the build machine, against 0.2 to 0.7 s on huge pages:
// MEASURED.md). A slab is freed with the last Buffer in it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace swordfish {

// What one thread fills; goes on in the next scope that is given it.
class BufferSlab {
 public:
  BufferSlab() = default;  // allocates slabs as they are needed
  // Fills this memory, which outlives the Buffers in it; what does not fit is allocated alone.
  explicit BufferSlab(std::span<std::byte> memory) : slab_(memory.data(), [](std::byte*) {}), size_(memory.size()), fixed_(true) {}

  static constexpr std::size_t slab_bytes = std::size_t{16} << 20;
  static constexpr std::size_t largest = std::size_t{4} << 20;  // what is larger has huge pages anyway

  // `size` bytes, 64-byte aligned, that live as long as the pointer; null: they are to be allocated alone. Throws std::bad_alloc.
  std::shared_ptr<std::byte> take(std::size_t size);

 private:
  std::shared_ptr<std::byte> slab_;
  std::size_t size_ = 0, used_ = 0;
  bool fixed_ = false;
};

class SlabScope {
 public:
  explicit SlabScope(BufferSlab& slab);
  ~SlabScope();
  SlabScope(const SlabScope&) = delete;
  SlabScope& operator=(const SlabScope&) = delete;

 private:
  BufferSlab* before_;
};

}  // namespace swordfish
