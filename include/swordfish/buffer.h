// Buffer: an owned run of bytes, 64-byte aligned, not initialised. It can be moved, not copied; its bytes stay where they are.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

namespace [[gnu::visibility("default")]] swordfish {

class Buffer {
 public:
  static constexpr std::size_t alignment = 64;  // a cache line, and the widest vector load

  Buffer() = default;
  // Throws std::bad_alloc when there is not enough memory (the C ABI turns that into SF_OUT_OF_MEMORY). Large buffers give their
  // pages back when they end (malloc may keep them), and the largest ask for huge pages: the first write to them is several times
  // faster (MEASURED.md), and so are strided reads.
  explicit Buffer(std::size_t size);

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    std::shared_ptr<std::byte> held;  // the slab or the pages that the bytes lie in; null: they are malloc's
    void operator()(std::byte* p) const {
      if (!held) std::free(p);
    }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace swordfish
